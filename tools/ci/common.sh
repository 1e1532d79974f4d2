# shellcheck shell=bash
# What the stage scripts share; each sources it first. See CONTRIBUTING.md, "The stages".
#
# A stage runs from the repository root, builds in folders below $HYS_CI_ROOT (shared with other stages) and keeps what is its own in $HYS_CI_FOLDER.
# It counts with pass, fail and skip, or with run_tests, and ends with finish. Without its tool it ends with skip_stage.
set -u -o pipefail

: "${HYS_CI_ROOT:=$PWD/build/test}"
: "${HYS_CI_FOLDER:=$HYS_CI_ROOT/stages/$(basename "$0" .sh)}"
mkdir -p "$HYS_CI_FOLDER"
HYS_CI_JOBS=${HYS_CI_JOBS:-$(nproc 2>/dev/null || echo 2)}
# Where tools/setup.sh unpacks the Debian packages that must not be installed.
HYS_CI_PACKAGES=${HYS_CI_PACKAGES:-$PWD/build/packages}
# Threads that wait must not take the cores from the tests that run beside them.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

passed=0 failed=0 skipped=0

note() { echo "$*"; }
pass() { passed=$((passed + ${1:-1})); }
skip() { skipped=$((skipped + 1)); note "skipped: $1"; } # what, and how to get what it needs
fail() { # what [how to go on]
    failed=$((failed + 1))
    note "FAILED: $1"
    [ -z "${2:-}" ] || note "next: $2"
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ] && [ $((passed + skipped)) -gt 0 ]
    exit
}

skip_stage() { # why, and how to get what is missing
    echo "$*"
    exit 77
}

# Without one of these programs the whole stage is skipped. (type -P: a stage has functions of the same names.)
need() { # Debian-package command...
    local package=$1 command
    shift
    for command in "$@"; do
        type -P "$command" > /dev/null || skip_stage "no $command here: tools/setup.sh ci (Debian: $package)"
    done
}

# Options of cmake. What is built to be watched, by whom -O3 helps little, compiles in a third of the time so.
# shellcheck disable=SC2034
watched=(-DCMAKE_BUILD_TYPE=None '-DCMAKE_C_FLAGS=-O1 -g1')

# Configures and builds $HYS_CI_ROOT/FOLDER, with line numbers alone to debug by (-g takes a fifth of the time); only the programs named in
# $programs, if it is set. A folder that another stage built is only brought up to date.
build() { # preset folder [option for cmake]...
    local preset=$1 name=$2 folder=$HYS_CI_ROOT/$2 log
    shift 2
    log=$folder/build.log
    mkdir -p "$folder"
    note "build $name: preset $preset${*:+ $*}"
    # shellcheck disable=SC2086
    if cmake --preset "$preset" -B "$folder" "-DHYS_TEST_POCL_CACHE=${HYS_TEST_POCL_CACHE:-$HYS_CI_ROOT/pocl}" \
             "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG" "$@" > "$log" 2>&1 &&
       cmake --build "$folder" -j "$HYS_CI_JOBS" ${programs:+--target $programs} >> "$log" 2>&1; then
        return 0
    fi
    grep -nE -A 8 'error:|Error|FAILED' "$log" | head -n 30
    fail "$name does not build" "read $log, then: cmake --build $folder"
    return 1
}

# The same for another architecture, in ARCHITECTURE-COMPILER; its packages are those that tools/setup.sh unpacks.
foreign() { # architecture compiler [option for cmake]...
    local architecture=$1 compiler=$2 packages=$HYS_CI_PACKAGES/$1
    shift 2
    [ -e "$packages/usr/include/cmocka.h" ] || skip_stage "no cmocka for $architecture in $packages: tools/setup.sh ci"
    build minimal "$architecture-$compiler" "-DCMAKE_TOOLCHAIN_FILE=$PWD/tools/cmake/foreign.cmake" "-DHYS_FOREIGN=$architecture" "-DHYS_FOREIGN_ROOT=$packages" \
        "-DHYS_FOREIGN_COMPILER=$compiler" "$@"
}

# Adds what ctest says in its summary to the counts. What it could not run for want of a program, it counts as failed.
count_ctest() { # log
    local summary total bad not_run
    summary=$(grep -E 'tests passed, [0-9]+ tests? failed out of [0-9]+' "$1")
    total=$(sed -nE 's/.*out of ([0-9]+).*/\1/p' <<< "$summary")
    bad=$(sed -nE 's/.* ([0-9]+) tests? failed.*/\1/p' <<< "$summary")
    not_run=$(grep -cE '^\s+[0-9]+ - .* \((Skipped|Disabled)\)$' "$1")
    passed=$((passed + ${total:-0} - ${bad:-0} - not_run))
    failed=$((failed + ${bad:-1}))
    skipped=$((skipped + not_run))
}

say_skipped_cases() { # build-folder
    local cases
    cases=$(grep -hoE '^\[  SKIPPED \] [A-Za-z_0-9]+$' "$1/Testing/Temporary/LastTest.log" 2>/dev/null | cut -c 14- | sort -u)
    [ -z "$cases" ] || note "skipped inside tests: $(wc -l <<< "$cases") cases: $(tr '\n' ' ' <<< "$cases" | fold -s -w 120 | sed '2,$s/^/    /')"
}

# Runs tests of a build folder and counts them: run_tests dev HYS_DISABLE=avx2 -- -L '^unit$'
run_tests() { # folder [VARIABLE=value]... -- selection as ctest takes it...
    local folder=$HYS_CI_ROOT/$1 environment=() log began=$SECONDS status
    shift
    while [ "$1" != -- ]; do environment+=("$1"); shift; done
    shift
    log=$folder/ctest.log
    note "tests of $(basename "$folder")${environment[*]:+ with ${environment[*]}}: $*"
    env "${environment[@]}" ctest --test-dir "$folder" -j "$HYS_CI_JOBS" --output-on-failure --no-tests=error "$@" > "$log" 2>&1
    status=$?
    grep -vE '^ *(Start +[0-9]+|[0-9]+/[0-9]+ Test .* Passed|Internal ctest|Test project|.*\*proc|Total Test time)|^$|^Label Time' "$log"
    count_ctest "$log"
    say_skipped_cases "$folder"
    note "  took $((SECONDS - began)) s; longest: $(longest "$log")"
    [ $status = 0 ] || note "next: ${environment[*]:+${environment[*]} }ctest --test-dir $folder --rerun-failed --output-on-failure"
}

longest() { # ctest log
    sed -nE 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec *$|\2 \1|p' "$1" | sort -rn | head -n 3 | awk '{ printf "%s%s %.0f s", (NR > 1 ? ", " : ""), $2, $1 }'
}

# Runs a file of Python's unittest and counts its tests.
run_unittest() { # python file [option of unittest]...
    local log status bad skips
    log=$HYS_CI_FOLDER/$(basename "$2" .py).log
    "$1" -m unittest -v "${@:2}" > "$log" 2>&1
    status=$?
    grep -vE ' \.\.\. ok$' "$log"
    pass "$(grep -cE ' \.\.\. ok$' "$log")"
    bad=$(grep -cE ' \.\.\. (FAIL|ERROR)$' "$log")
    skips=$(grep -cE ' \.\.\. skipped ' "$log")
    failed=$((failed + bad)) skipped=$((skipped + skips))
    [ $status = 0 ] || [ "$bad" != 0 ] || fail "the tests of $2 did not run"
}
