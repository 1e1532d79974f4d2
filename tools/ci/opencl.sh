#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/opencl.bash

build dev dev || finish
started=()
for name in rusticl intel pocl64; do
    use $name || continue
    started+=("$name")
    {
        HYS_TEST_DEVICES=opencl "${under[@]}" timeout 900 "$HYS_CI_ROOT/dev/tests/portability/portability_rows"
        echo $? > "$HYS_CI_FOLDER/$name.status"
    } > "$HYS_CI_FOLDER/$name.out" 2>&1 &
done
wait
for name in "${started[@]}"; do
    use "$name" && count_program "$name" "$(cat "$HYS_CI_FOLDER/$name.status")" "$HYS_CI_FOLDER/$name.out"
done
# On real work it would answer wrong numbers, and so is not to be used.
if use rusticl; then
    under+=(HYS_DISABLE=)
    if "${under[@]}" "$HYS_CI_ROOT/dev/hyscale" devices 2>&1 | grep -q 'llvmpipe ends loops'; then pass
    else fail "hyscale devices does not say why llvmpipe is not used"
    fi
fi
finish
