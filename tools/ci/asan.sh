#!/usr/bin/env bash
. tools/ci/common.sh
# The emulated matrix units test kernels, not this code, and take minutes. Other drivers than PoCL may crash under the sanitizer: Intel's loads libraries in a way that it refuses.
build asan asan && run_tests asan OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd -- -LE '^(install|docs|portability)$' -E '\.matrix'
finish
