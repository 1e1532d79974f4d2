#!/usr/bin/env bash
. tools/ci/common.sh
# Threads share the work alike whatever the instruction set, and each set's tests take minutes here: AVX2 and the references (names that do not end in .portable) run them all, those that score halves their own.
if build tsan tsan; then
    run_tests tsan HYS_DISABLE=avx512 'HYS_TEST_KERNELS=*[!e]' -- -L '^(unit|conformance|fault|control)$'
    run_tests tsan "HYS_TEST_FILTER=bf16 [dko]*" -- -R '^conformance\.select$'
fi
finish
