#!/usr/bin/env bash
# Builds and tests hyscale in each configuration that it promises to work in, one stage each.
#
#   tools/test.sh [--quick] [STAGE...]
#
# Works in build/test (or $HYS_BUILD_DIR). Its last line counts the tests of all stages; exit status 1 if one failed.
set -u

# name       tier    preset    build folder   options for cmake                         environment                                         tests, as ctest selects them
stages='
default    ; quick ; dev     ; dev          ;                                         ;                                                   ; -LE ^(install|docs)$
install    ; quick ; dev     ; dev          ;                                         ;                                                   ; -L ^install$
docs       ; quick ; dev     ; dev          ;                                         ;                                                   ; -L ^docs$
minimal    ; quick ; minimal ; minimal      ;                                         ;                                                   ; -LE ^docs$
noplatform ; full  ; dev     ; dev          ;                                         ; OCL_ICD_VENDORS=/nonexistent                      ; -LE ^(install|docs)$
scalar     ; full  ; dev     ; dev          ;                                         ; HYS_DISABLE=avx2 OCL_ICD_VENDORS=/nonexistent     ; -LE ^(install|docs)$
asan       ; full  ; asan    ; asan         ;                                         ; OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd      ; -LE ^(install|docs)$
tsan       ; full  ; tsan    ; tsan         ;                                         ;                                                   ; -L ^(unit|conformance|fault)$
no-opencl  ; full  ; dev     ; no-opencl    ; -DWITH_OPENCL=OFF -DWITH_CLBLAST=OFF    ;                                                   ; -L ^(unit|install)$
no-openmp  ; full  ; dev     ; no-openmp    ; -DWITH_OPENMP=OFF                       ;                                                   ; -L ^(unit|install)$
no-hwloc   ; full  ; dev     ; no-hwloc     ; -DWITH_HWLOC=OFF                        ;                                                   ; -L ^(unit|install)$
no-clblast ; full  ; dev     ; no-clblast   ; -DWITH_CLBLAST=OFF                      ;                                                   ; -L ^(unit|install)$
fuzz       ; full  ; fuzz    ; fuzz         ;                                         ;                                                   ; -L ^fuzz$
'

cd "$(dirname "$0")/.." || exit 1
root=$PWD/build/test
[ -z "${HYS_BUILD_DIR:-}" ] || root=$(realpath -m "$HYS_BUILD_DIR")

known=$(cut -d ';' -f 1 <<< "$stages" | tr -s '\n ' ' ')
tiers='quick full'
names=
for arg in "$@"; do
    if [ "$arg" = --quick ]; then tiers=quick
    elif [[ "$known" = *" $arg "* ]]; then names="$names $arg"
    else echo "usage: tools/test.sh [--quick] [STAGE...]; stages:$known" >&2; exit 2
    fi
done

passed=0 failed=0 skipped=0 failed_stages=
jobs=$(nproc 2>/dev/null || echo 2)

# Threads that wait must not take the cores from the tests that run beside them.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

note() { echo "  $*"; }

fail_stage() { # what next-step
    note "FAILED: $1"
    note "next: $2"
    failed_stages="$failed_stages $stage"
}

build() {
    local log=$folder/build.log
    mkdir -p "$folder"
    # shellcheck disable=SC2086
    if cmake --preset "$preset" -B "$folder" -DHYS_TEST_POCL_CACHE="$root/pocl" $options > "$log" 2>&1 &&
       cmake --build "$folder" >> "$log" 2>&1; then
        return 0
    fi
    grep -nE -A 8 'error:|Error|FAILED' "$log" | head -n 30
    failed=$((failed + 1))
    fail_stage "it does not build" "read $log, then: cmake --build $folder"
    return 1
}

# Adds what ctest says in its summary to the counts. What it could not run for want of a program, it counts as failed.
count() { # log
    local summary total bad not_run
    summary=$(grep -E 'tests passed, [0-9]+ tests? failed out of [0-9]+' "$1")
    total=$(sed -nE 's/.*out of ([0-9]+).*/\1/p' <<< "$summary")
    bad=$(sed -nE 's/.* ([0-9]+) tests? failed.*/\1/p' <<< "$summary")
    not_run=$(grep -cE '^\s+[0-9]+ - .* \((Skipped|Disabled)\)$' "$1")
    passed=$((passed + ${total:-0} - ${bad:-0} - not_run))
    failed=$((failed + ${bad:-1}))
    skipped=$((skipped + not_run))
}

say_skipped_cases() {
    local cases
    cases=$(grep -hoE '^\[  SKIPPED \] [A-Za-z_0-9]+$' "$folder/Testing/Temporary/LastTest.log" 2>/dev/null | cut -c 14- | sort -u)
    [ -z "$cases" ] || note "skipped inside tests: $(wc -l <<< "$cases") cases: $(tr '\n' ' ' <<< "$cases" | fold -s -w 120 | sed '2,$s/^/    /')"
}

run_tests() {
    local log=$folder/ctest.log status
    # shellcheck disable=SC2086
    env $environment ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error $selection > "$log" 2>&1
    status=$?
    grep -vE '^ *(Start +[0-9]+|[0-9]+/[0-9]+ Test .* Passed|Internal ctest|Test project|.*\*proc)|^$|^Label Time' "$log" | sed 's/^/  /'
    count "$log"
    say_skipped_cases
    [ $status = 0 ] || fail_stage "see above, or $log" "${environment:+$environment }ctest --test-dir $folder --rerun-failed --output-on-failure"
}

trim() { sed -E 's/^ +| +$//g' <<< "$1"; }

tools/setup.sh test || { echo "test: what is missing above is needed first" >&2; exit 1; }

while IFS=';' read -r stage tier preset build_name options environment selection; do
    stage=$(trim "$stage") tier=$(trim "$tier") preset=$(trim "$preset") folder=$root/$(trim "$build_name")
    options=$(trim "$options") environment=$(trim "$environment") selection=$(trim "$selection")
    if [ -n "$names" ]; then
        [[ " $names " = *" $stage "* ]] || continue
    else
        [[ " $tiers " = *" $tier "* ]] || continue
    fi
    began=$SECONDS
    echo "== $stage${environment:+ ($environment)}${options:+ ($options)}"
    build && run_tests
    echo "== $stage took $((SECONDS - began)) s"
done < <(grep ';' <<< "$stages")

[ -z "$failed_stages" ] || echo "failed stages:$failed_stages"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
