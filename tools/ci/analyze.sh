#!/usr/bin/env bash
. tools/ci/common.sh
# Static analysis of the library and the command: gcc's analyzer, clang-tidy (.clang-tidy), cppcheck. One test each; each has to find its plant first.

plant=tests/controls/plants.c
sources() { git ls-files 'src/*.c' 'backends/*.c' 'tools/*.c'; }

# Whether what the analyzer says of the plant names the warning.
finds() { # name warning output
    grep -qF -e "$2" <<< "$3" || fail "$1 does not report '$2' in $plant" "what it said: $(head -n 5 <<< "$3")"
}

# Those that are compiled here: not kernels of other architectures, nor what an absent library is needed for.
compiled() { # build folder
    local file
    while read -r file; do
        ! grep -qF "\"file\": \"$PWD/$file\"" "$1/compile_commands.json" || echo "$file"
    done < <(sources)
}

# Findings as "file warning line text", of which tools/ci/analyze.txt names those that are none.
by_gcc() {
    local folder=$HYS_CI_ROOT/analyze log=$HYS_CI_FOLDER/gcc.log found accepted line
    finds "gcc -fanalyzer" -Wanalyzer-double-free "$(gcc -fanalyzer -c "$plant" -o /dev/null 2>&1)"
    mkdir -p "$folder"
    # Unoptimised: inlining hides paths. From the start: what is up to date would not be reported again.
    if ! { cmake --preset dev -B "$folder" -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-fanalyzer -DHYS_WERROR=OFF -DHYS_BUILD_TESTS=OFF &&
           cmake --build "$folder" --clean-first -j "$HYS_CI_JOBS"; } > "$log" 2>&1; then
        fail "gcc -fanalyzer: it does not build" "read $log"
        return
    fi
    found=$(sed -nE "s|^(\.\./)*($PWD/)?([^ :]+):([0-9]+):[0-9]+: warning: (.*) \[-Wanalyzer-([a-z-]+)\]$|\3 \6 \4 \5|p" "$log" | sort -u)
    accepted=$(grep -vE '^(#|$)' tools/ci/analyze.txt | awk '{ print $1, $2 }')
    while read -r line; do
        grep -qxF "${line%% *}" <<< "$(compiled "$folder")" || continue
        grep -q "^$line " <<< "$found" || fail "tools/ci/analyze.txt accepts '$line', which gcc does not report" "remove the line"
    done <<< "$accepted"
    while read -r line; do
        [ -z "$line" ] || grep -qxF "$(cut -d ' ' -f 1,2 <<< "$line")" <<< "$accepted" ||
            fail "gcc -fanalyzer: $line" "paths in $log; mend it, or accept it with a reason in tools/ci/analyze.txt"
    done <<< "$found"
}

by_clang_tidy() {
    local log=$HYS_CI_FOLDER/tidy.log planted
    planted=$(clang-tidy --quiet "$plant" -- -std=c11 2>&1)
    finds clang-tidy bugprone-implicit-widening-of-multiplication-result "$planted"
    finds clang-tidy clang-analyzer-unix.Malloc "$planted"
    build dev clang -DCMAKE_C_COMPILER=clang || return
    note "not compiled here: $(comm -23 <(sources | sort) <(compiled "$HYS_CI_ROOT/clang" | sort) | tr '\n' ' ')"
    compiled "$HYS_CI_ROOT/clang" | xargs -P "$HYS_CI_JOBS" -n 4 clang-tidy -p "$HYS_CI_ROOT/clang" --quiet > "$log" 2>&1 && return
    grep -E '(warning|error):' "$log" | sort -u | head -n 30
    fail "clang-tidy" "mend it, or say // NOLINT(check) with the reason; all of it in $log"
}

cppcheck_on() { # file...
    cppcheck --enable=warning,performance,portability --inline-suppr --error-exitcode=1 --std=c11 --library=posix --quiet -j "$HYS_CI_JOBS" \
        -I include -I src -I backends/openmp -I backends/opencl -D__x86_64__ -DHYS_WITH_HWLOC=1 -DHYS_WITH_OPENCL=1 -DHYS_WITH_OPENMP=1 -DHYS_WITH_CLBLAST=1 \
        --template='{file}:{line}: {severity}: {message} [{id}]' "$@" 2>&1
}

by_cppcheck() {
    local log=$HYS_CI_FOLDER/cppcheck.log
    finds cppcheck arrayIndexOutOfBounds "$(cppcheck_on "$plant")"
    # shellcheck disable=SC2046
    cppcheck_on $(sources) > "$log" && return
    sort -u "$log" | head -n 30
    fail "cppcheck" "mend it, or say // cppcheck-suppress ID with the reason"
}

run_analyzer() { # name command function
    local before=$failed began=$SECONDS
    command -v "$2" > /dev/null || { skip "$1: no $2 here: tools/setup.sh ci"; return; }
    $3
    [ "$failed" != "$before" ] || pass
    note "$1: $(sources | wc -l) files, $((failed - before)) findings, $((SECONDS - began)) s"
}

run_analyzer "gcc -fanalyzer" gcc by_gcc
run_analyzer clang-tidy clang-tidy by_clang_tidy
run_analyzer cppcheck cppcheck by_cppcheck
finish
