#!/usr/bin/env bash
. tools/ci/common.sh

# The distribution's Python, which python3-torch is for, before any other.
python=
for candidate in /usr/bin/python3 python3; do
    "$candidate" -c 'import numpy, torch' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || skip_stage "no Python with numpy and torch here: tools/setup.sh ci (Debian: python3-torch), or pip install numpy torch"

build dev dev || finish
export PYTHONPATH=$PWD/tools/python HYSCALE_LIBRARY=$HYS_CI_ROOT/dev/libhyscale.so PYTHONDONTWRITEBYTECODE=1
if "$python" tests/python/struct_layouts.py "${CC:-cc}" include; then pass; else fail "the binding's structs are not those of the headers"; fi

run_unittest "$python" tests/python/test_binding.py
finish
