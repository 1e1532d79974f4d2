#!/usr/bin/env bash
. tools/ci/common.sh
build dev dev && run_tests dev OCL_ICD_VENDORS=/nonexistent HYS_DISABLE=avx2 -- -LE '^(install|docs|portability|mpi)$' -E '^cli\.train$'
finish
