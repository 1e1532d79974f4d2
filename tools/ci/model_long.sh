#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/model.bash
run_unittest "$python" tests/python/test_smollm2.py -k GoingOn -k Refusing
finish
