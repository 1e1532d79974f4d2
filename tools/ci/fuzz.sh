#!/usr/bin/env bash
. tools/ci/common.sh
need clang clang
programs=fuzzers build fuzz fuzz && run_tests fuzz -- -L '^fuzz$'
finish
