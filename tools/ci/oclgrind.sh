#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/opencl.bash

need oclgrind oclgrind
build dev dev || finish
# At once: each uses little more than one core.
watch accesses accesses portability/portability_rows &
watch initialised initialised portability/portability_rows single &
wait
watch sums accesses unit/unit_add &
watch codes accesses unit/unit_quantize &
wait
judge accesses
judge initialised
judge sums
judge codes
finish
