#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/opencl.bash

need oclgrind oclgrind
build dev dev || finish
# Matrix units are emulated with some local memory of their own.
units() {
    export HYS_TEST_FILTER=bf16
    oclgrind_local_memory=65536 watch units accesses conformance/conformance_matrix
}
watch initialised initialised portability/portability_rows &
units &
wait
judge initialised
judge units
finish
