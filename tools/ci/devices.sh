#!/usr/bin/env bash
. tools/ci/common.sh
# What does not ask for a device is in the stages basics and ranks, the .portable kernels are in the stage scalar.
build dev dev && run_tests dev 'HYS_TEST_KERNELS=*.[!p]*' -- -LE '^(unit|cli|install|docs|portability|mpi)$' -E '^case\.'
finish
