#!/usr/bin/env bash
. tools/ci/common.sh
# Training and ranks, which use processors anyway, are in the stages basics and ranks; the .portable kernels, slow as they are, in the stage scalar.
build dev dev && run_tests dev OCL_ICD_VENDORS=/nonexistent 'HYS_TEST_KERNELS=*[!e]' -- -LE '^(install|docs|portability|mpi)$' -E '^cli\.train$'
finish
