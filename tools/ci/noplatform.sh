#!/usr/bin/env bash
. tools/ci/common.sh
# Training and ranks, which use processors anyway, are in the stages basics and ranks.
build dev dev && run_tests dev OCL_ICD_VENDORS=/nonexistent -- -LE '^(install|docs|portability|mpi)$' -E '^cli\.train$'
finish
