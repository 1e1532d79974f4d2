#!/usr/bin/env bash
. tools/ci/common.sh
# What does not ask for a device is in the stage basics, the .portable kernels are in the stage scalar.
build dev dev && run_tests dev 'HYS_TEST_KERNELS=*.[!p]*' -- -LE '^(unit|cli|install|docs|portability)$' -E '^case\.'
finish
