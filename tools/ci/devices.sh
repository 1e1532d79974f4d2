#!/usr/bin/env bash
. tools/ci/common.sh
# What does not ask for a device is in the stage basics.
if build dev dev; then
    run_tests dev -- -LE '^(unit|cli|install|docs|portability)$' -E '^case\.'
    run_tests dev -- -R '^unit\.matrix_faults$'
fi
finish
