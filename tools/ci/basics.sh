#!/usr/bin/env bash
. tools/ci/common.sh
if build dev dev; then
    # unit.matrix_faults has PoCL compile for minutes: it is in the stage devices.
    run_tests dev -- -L '^(unit|cli|install|docs)$' -E '^unit\.matrix_faults$'
    run_tests dev -- -R '^case\.'
fi
finish
