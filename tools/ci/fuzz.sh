#!/usr/bin/env bash
. tools/ci/common.sh
build fuzz fuzz && run_tests fuzz -- -L '^fuzz$'
finish
