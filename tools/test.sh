#!/usr/bin/env bash
# Runs the stages of tools/ci/stages.txt: builds and tests hyscale in each configuration that it promises to work in.
#
#   tools/test.sh [--quick | --all | STAGE...]     --list names the stages
#
# Works in build/test (or $HYS_BUILD_DIR). Its last line counts the tests of all stages; exit status 1 if one failed.
set -u

cd "$(dirname "$0")/.." || exit 1
HYS_CI_ROOT=$PWD/build/test
[ -z "${HYS_BUILD_DIR:-}" ] || HYS_CI_ROOT=$(realpath -m "$HYS_BUILD_DIR")
export HYS_CI_ROOT

rows=$(grep -vE '^(#|$)' tools/ci/stages.txt)
known=$(awk '{ print $1 }' <<< "$rows")
for script in tools/ci/*.sh; do
    name=$(basename "$script" .sh)
    [ "$name" = common ] || grep -qxF "$name" <<< "$known" || { echo "test: tools/ci/stages.txt does not name $name" >&2; exit 1; }
done

usage() { echo "usage: tools/test.sh [--quick | --all | STAGE...]; --list names the stages" >&2; exit 2; }

tiers=' quick full ' names=' '
for arg in "$@"; do
    case $arg in
        --list) echo "$rows"; exit 0 ;;
        --quick) tiers=' quick ' ;;
        --all) tiers=' quick full all ' ;;
        *) grep -qxF -e "$arg" <<< "$known" || usage
           names="$names$arg " ;;
    esac
done

chosen() { # stage tier
    if [ "$names" != ' ' ]; then [[ $names = *" $1 "* ]]; else [[ $tiers = *" $2 "* ]]; fi
}

tools/setup.sh test || { echo "test: what is missing above is needed first" >&2; exit 1; }
# What only some stages need: they say for themselves what they miss.
[ "$tiers" = ' quick ' ] || tools/setup.sh ci

# The configurations differ in few files, so most of the later ones' are compiled already.
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache} CCACHE_DIR=${CCACHE_DIR:-$HYS_CI_ROOT/ccache}
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
fi

passed=0 failed=0 skipped=0 failed_stages='' table=''

# Sets result, and adds to the counts, from how a stage ended.
judge() { # status log
    local last counts=(0 0 0)
    last=$(grep -v '^$' "$2" | tail -n 1)
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        counts=("${BASH_REMATCH[@]:1}")
        if [ "$1" = 0 ] && [ "${counts[1]}" = 0 ] && [ $((counts[0] + counts[2])) -gt 0 ]; then
            result=passed
            [ "${counts[0]}" -gt 0 ] || result=skipped
        else
            result=FAILED
            [ "${counts[1]}" -gt 0 ] || counts[1]=1
        fi
    elif [ "$1" = 77 ]; then
        result=skipped counts[2]=1
    else
        echo "  ended with status $1, and without a count of its tests"
        result=FAILED counts[1]=1
    fi
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
    row=("${counts[@]}")
}

run_stage() { # stage what-it-does
    local stage=$1 began=$SECONDS status log
    export HYS_CI_FOLDER=$HYS_CI_ROOT/stages/$stage
    log=$HYS_CI_FOLDER/stage.log
    mkdir -p "$HYS_CI_FOLDER"
    echo "== $stage: $2"
    bash "tools/ci/$stage.sh" < /dev/null 2>&1 | tee "$log" | sed -u 's/^/  /'
    status=${PIPESTATUS[0]}
    judge "$status" "$log"
    [ "$result" != FAILED ] || failed_stages="$failed_stages $stage"
    echo "== $stage: $result, took $((SECONDS - began)) s"
    table+=$(printf '%-12s  %-7s  %7d  %7d  %7d  %7d' "$stage" "$result" "${row[@]}" $((SECONDS - began)))$'\n'
}

while read -r stage tier what; do
    ! chosen "$stage" "$tier" || run_stage "$stage" "$what"
done <<< "$rows"

printf '\n%-12s  %-7s  %7s  %7s  %7s  %7s\n%s' stage result passed failed skipped seconds "$table"
[ -z "$failed_stages" ] || echo "failed stages:$failed_stages"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $((passed + skipped)) -gt 0 ]
