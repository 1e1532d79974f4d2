#!/usr/bin/env bash
. tools/ci/common.sh
build dev dev && run_tests dev -- -LE '^(install|docs)$'
finish
