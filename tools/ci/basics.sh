#!/usr/bin/env bash
. tools/ci/common.sh
if build dev dev; then
    run_tests dev -- -L '^(unit|cli|install|docs)$'
    run_tests dev -- -R '^case\.'
fi
finish
