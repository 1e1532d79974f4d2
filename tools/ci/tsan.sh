#!/usr/bin/env bash
. tools/ci/common.sh
build tsan tsan && run_tests tsan -- -L '^(unit|conformance|fault|control)$'
finish
