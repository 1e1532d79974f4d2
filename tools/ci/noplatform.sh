#!/usr/bin/env bash
. tools/ci/common.sh
# Training, ranks, repeated runs and what 65,536 rows take, which use processors anyway, are in the stages basics, devices and ranks; so are the .ref kernels, and the .portable ones in the stage scalar: they are slow. So is what the command measures.
build dev dev && run_tests dev HYS_TEST_SHORT=1 OCL_ICD_VENDORS=/nonexistent 'HYS_TEST_KERNELS=*.[!pr]*' -- -LE '^(install|docs|portability|mpi|train)$' -E '^(conformance\.determinism|unit\.memory)$'
finish
