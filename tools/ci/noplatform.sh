#!/usr/bin/env bash
. tools/ci/common.sh
if build dev dev; then
    run_tests dev OCL_ICD_VENDORS=/nonexistent -- -LE '^(install|docs)$'
    run_tests dev OCL_ICD_VENDORS=/nonexistent HYS_DISABLE=avx2 -- -LE '^(install|docs)$'
fi
finish
