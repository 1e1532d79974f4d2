#!/usr/bin/env bash
. tools/ci/common.sh
need clang clang
build fuzz fuzz && run_tests fuzz -- -L '^fuzz$'
finish
