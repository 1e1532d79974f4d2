#!/usr/bin/env bash
. tools/ci/common.sh
build minimal minimal && run_tests minimal -- -LE '^docs$'
finish
