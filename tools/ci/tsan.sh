#!/usr/bin/env bash
. tools/ci/common.sh
# What 65,536 rows take is measured in the stage basics.
# Threads share the work alike whatever the instruction set, and each set's tests take minutes here: AVX2 (neither .portable nor .ref) runs them all, the references some, those that score halves their own.
if build tsan tsan "${watched[@]}"; then
    run_tests tsan HYS_DISABLE=avx512 'HYS_TEST_KERNELS=*.[!pr]*' -- -L '^(unit|conformance|fault|control)$' -E '\.(determinism|memory)$'
    run_tests tsan 'HYS_TEST_KERNELS=*.ref' 'HYS_TEST_FILTER=f*' -- -R '^conformance\.' -E '\.(determinism|several_devices|pool)'
    run_tests tsan 'HYS_TEST_KERNELS=*.ref' -- -R '^conformance\.pool'
    run_tests tsan "HYS_TEST_FILTER=bf16 [dko]*" -- -R '^conformance\.select$'
fi
finish
