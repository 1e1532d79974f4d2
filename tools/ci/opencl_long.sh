#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/opencl.bash

conform() { # implementation
    local name=$1 program output
    use "$name" || return
    for program in "$HYS_CI_ROOT"/dev/tests/conformance/conformance_{select,select_coarse,attention,attention_backward,loss,pool,pool_backward,fidelity,merge}; do
        output=$HYS_CI_FOLDER/$name.${program##*_}
        HYS_TEST_DEVICES=opencl "${under[@]}" timeout 3600 "$program" > "$output" 2>&1
        count_program "$name: $(basename "$program")" $? "$output"
    done
}

# Programs and their counts stay apart, two implementations at a time.
# shellcheck disable=SC2030,SC2031
part() {
    (passed=0 failed=0 skipped=0
     conform "$1" > "$HYS_CI_FOLDER/$1.out" 2>&1
     echo "$passed $failed $skipped" > "$HYS_CI_FOLDER/$1.counts")
}

build dev dev || finish
# Emulated matrix units, on PoCL alone: one program a case.
run_tests dev HYS_TEST_FULL=1 -- -R '^conformance\.matrix'
part rusticl & part intel & wait
part pocl64
for name in rusticl intel pocl64; do
    cat "$HYS_CI_FOLDER/$name.out"
    read -r good bad left < "$HYS_CI_FOLDER/$name.counts"
    note "$name: $good passed, $bad failed, $left skipped"
    # shellcheck disable=SC2031
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
done
finish
