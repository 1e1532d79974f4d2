#!/usr/bin/env bash
# Holds every kernel row of one device against the oracle: conformance, determinism, gradient and portability tests and the case files, many
# processes beside each other, one row in each.
#
#   tools/conformance.sh [BUILD [DEVICE [SECONDS]]]
#
# BUILD    where hyscale and its tests are built: build/default
# DEVICE   as HYS_TEST_DEVICES takes it: opencl:0, a GPU if there is one
# SECONDS  what a process may take: 600
#
# Rows for matrix units run all cases; other rows those that the tests choose for devices that compile a program per problem, with HYS_TEST_FULL=1
# all. HYS_TEST_KERNELS chooses rows, JOBS says how many processes at once, CONFORMANCE_SECONDS what all may take together. What processes print is
# kept in BUILD/conformance ($CONFORMANCE_OUT). The last line counts processes; exit status 1 if one failed.
set -u -o pipefail
export BUILD DEVICE LIMIT OUT ROOT END
ROOT=$(cd "$(dirname "$0")/.." && pwd)
BUILD=$(realpath "${1:-build/default}") DEVICE=${2:-opencl:0} LIMIT=${3:-600}
OUT=$(realpath -m "${CONFORMANCE_OUT:-$BUILD/conformance}")
JOBS=${JOBS:-$(nproc)}
END=$(($(date +%s) + ${CONFORMANCE_SECONDS:-100000}))
only=${HYS_TEST_KERNELS:-*}
unset HYS_TEST_FILTER HYS_TEST_KERNELS HYS_TEST_PART
rm -rf "$OUT"/*.log "$OUT"/results "$OUT"/tasks
mkdir -p "$OUT"
export HYS_CACHE_DIR=${HYS_CACHE_DIR-$OUT/cache} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
programs='attention_backward attention select select_coarse loss pool pool_backward fidelity merge'
began=$SECONDS

for program in $programs; do
    [ -x "$BUILD/tests/conformance/conformance_$program" ] || { echo "no tests in $BUILD: cmake with -DHYS_BUILD_TESTS=ON" >&2; exit 2; }
done

# Kernel rows of a program that the device has: the last test of each names them.
rows_of() { # program
    HYS_TEST_DEVICES=$DEVICE HYS_TEST_FILTER=coverage "$BUILD/tests/conformance/conformance_$1" 2>&1 |
        awk '/ [0-9]+ x / && !/skipped:/ { print $1 }'
}

generic() { [[ $1 =~ \.(ref|tile|cpu|clblast)$ ]]; }

# Lines of what to run: kind, kernel row or -, program, part or filter.
list_row() { # program row
    local parts=8 i kind=all filter='*'
    ! generic "$2" || parts=3 kind=${HYS_TEST_FULL:+all}
    case $1 in
        select | select_coarse) filter='select*' ;;
        attention) filter='attention*' ;;
        attention_backward) filter='attention backward*' ;;
        loss) filter='indexer loss*' ;;
        *) parts=1 filter='' ;;
    esac
    for ((i = 1; i <= parts; i++)); do echo "${kind:-core}|$2|$1|$i/$parts"; done
    [ -z "$filter" ] || echo "determinism|$2|determinism|$filter"
}

list() {
    local program row file i
    for program in $programs; do
        for row in $(rows_of "$program"); do
            # shellcheck disable=SC2053
            [[ $row != $only ]] || list_row "$program" "$row"
        done
    done
    [ "$only" = '*' ] || return
    for program in attention loss; do
        for i in 1 2 3 4; do echo "gradient|-|$program|$i/4"; done
    done
    echo "portability|-|rows|"
    echo "devices|-|several_devices|"
    echo "devices|-|halves|"
    echo "units|-|matrix|"
    echo "units|-|matrix_faults|"
    for file in "$ROOT"/tests/cases/*.safetensors; do echo "case|-|$file|"; done
}

program_of() { # kind program
    case $1 in
        gradient | portability) echo "$BUILD/tests/$1/$1_$2" ;;
        case) echo "$BUILD/hyscale check --device ${DEVICE%%:*} $2" ;;
        *) echo "$BUILD/tests/conformance/conformance_$2" ;;
    esac
}

# Runs a line of the list; adds one to the results: kind, row, status, seconds, cases that the row ran, tests that failed, what.
run_one() { # line
    local kind row program part command status log left start=$EPOCHREALTIME with=(HYS_TEST_DEVICES="$DEVICE" HYS_TEST_FULL=1)
    IFS='|' read -r kind row program part <<< "$1"
    log=$OUT/$(tr -c 'A-Za-z0-9.\n' _ <<< "$kind.$row.$(basename "$program").$part").log
    case $kind in
        all) with+=(HYS_TEST_KERNELS="$row" HYS_TEST_PART="$part") ;;
        core) with=(HYS_TEST_DEVICES="$DEVICE" HYS_TEST_KERNELS="$row" HYS_TEST_PART="$part") ;;
        determinism) with+=(HYS_TEST_KERNELS="$row" HYS_TEST_FILTER="$part") ;;
        gradient) with+=(HYS_TEST_PART="$part") ;;
        # Its cases are for rows that every device has.
        portability) with+=("HYS_DISABLE=mma,wgmma,mfma,wmma,dpas") ;;
        devices) with=(HYS_TEST_DEVICES="openmp,$DEVICE" HYS_TEST_FULL=1) ;;
        units) with=() ;;
    esac
    read -ra command <<< "$(program_of "$kind" "$program")"
    left=$((END - $(date +%s)))
    [ "$left" -lt "$LIMIT" ] || left=$LIMIT
    if [ "$left" -gt 0 ]; then
        env "${with[@]}" timeout -k 5 "$left" "${command[@]}" > "$log" 2>&1
        status=$?
    else
        : > "$log"
        status=124
    fi
    awk -v kind="$kind" -v row="$row" -v status=$status -v what="$(basename "$log" .log)" -v start="$start" -v end="$EPOCHREALTIME" '
        / [0-9]+ x / && / cases, / { sub(/ cases, .*/, ""); ran += $NF }
        /repeated: / { ran++ }
        /^PASS/ { ran++ }
        /^\[  FAILED  \] [^0-9]/ { bad[$0] = 1 }
        /^FAIL/ { bad[$0] = 1 }
        END {
            for (name in bad) failed++
            printf "%s %s %d %.1f %d %d %s\n", kind, row, status, end - start, ran, failed, what
        }' "$log" >> "$OUT/results"
}
export -f run_one program_of

# A line for each kernel row, one for each other kind.
table() {
    awk '{
        group = $2 == "-" ? $1 : $2
        if (!(group in seen)) { seen[group] = 1; order[++groups] = group }
        processes[group]++
        seconds[group] += $4
        if ($1 == "determinism") repeated[group] += $5; else ran[group] += $5
        failed[group] += $6
        if ($3 == 124 || $3 == 137) late[group]++
        else if ($3 != 0 && $3 != 77) bad[group]++
    }
    END {
        printf "%-44s %9s %6s %6s %6s %9s %9s\n", "kernel row", "processes", "cases", "same", "failed", "not ended", "seconds"
        for (i = 1; i <= groups; i++) {
            g = order[i]
            if (failed[g] < bad[g]) failed[g] = bad[g]
            printf "%-44s %9d %6d %6d %6d %9d %9.0f\n", g, processes[g], ran[g], repeated[g], failed[g], late[g], seconds[g]
        }
    }' "$OUT/results"
}

# Rows for matrix units take longest, so they go first.
list > "$OUT/tasks.all"
{ grep '^all|' "$OUT/tasks.all"; grep -E '^(determinism|gradient|devices)\|' "$OUT/tasks.all"; grep -vE '^(all|determinism|gradient|devices)\|' "$OUT/tasks.all"; } > "$OUT/tasks"
rm "$OUT/tasks.all"
[ -s "$OUT/tasks" ] || { echo "no kernel row called $only on $DEVICE" >&2; exit 2; }
: > "$OUT/results"
# shellcheck disable=SC2016
xargs -d '\n' -P "$JOBS" -I LINE bash -c 'run_one "$1"' run_one LINE < "$OUT/tasks"
table
# A row that no case ran was not tested.
awk '$2 != "-" && $1 != "determinism" { ran[$2] += $5 } END { for (row in ran) if (ran[row] == 0) { print row ": no case ran"; bad = 1 } exit bad }' "$OUT/results" || none=1
awk '$3 != 0 && $3 != 77 { print "FAILED: " $7 ", status " $3 }' "$OUT/results"
passed=$(awk '$3 == 0' "$OUT/results" | wc -l) skipped=$(awk '$3 == 77' "$OUT/results" | wc -l)
failed=$(($(wc -l < "$OUT/tasks") - passed - skipped))
echo "$((SECONDS - began)) s, $(awk '{ cases += $5 } END { print cases + 0 }' "$OUT/results") cases"
echo "$passed passed, $((failed + ${none:-0})) failed, $skipped skipped"
[ $((failed + ${none:-0})) = 0 ]
