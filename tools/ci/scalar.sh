#!/usr/bin/env bash
. tools/ci/common.sh
# The .ref kernels, which are the same with AVX2, are in the stage devices; the command measures in the stage basics.
build dev dev && run_tests dev HYS_TEST_SHORT=1 OCL_ICD_VENDORS=/nonexistent HYS_DISABLE=avx2 'HYS_TEST_KERNELS=*.[!r]*' -- -LE '^(install|docs|portability|mpi|train)$' -E '^unit\.memory$'
finish
