#!/usr/bin/env bash
. tools/ci/common.sh
# The kernels are those of the stages devices and scalar; here the fastest show that nothing else is missed.
build minimal minimal && run_tests minimal 'HYS_TEST_KERNELS=*.[!pr]*' -- -LE '^docs$' -E '^(conformance\.determinism|unit\.memory)$'
finish
