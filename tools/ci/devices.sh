#!/usr/bin/env bash
. tools/ci/common.sh
# What does not ask for a device is in the stage basics.
build dev dev && run_tests dev -- -LE '^(unit|cli|install|docs|portability)$' -E '^case\.'
finish
