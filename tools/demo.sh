#!/usr/bin/env bash
# Builds hyscale in build/demo (or $HYS_BUILD_DIR) and shows its main job on layers of a small language model.
#
#   tools/demo.sh [options of "hyscale demo"]
set -eu
cd "$(dirname "$0")/.."
build=${HYS_BUILD_DIR:-build/demo}
mkdir -p "$build"
log=$build/demo.log

step() {
    local what=$1
    shift
    echo "demo: $what" >&2
    if ! "$@" > "$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "demo: this failed: $*" >&2
        echo "demo: next: read $log; run tools/setup.sh if something is missing; remove $build to start afresh" >&2
        exit 1
    fi
}

tools/setup.sh demo || echo "demo: going on with what is installed" >&2
step "configuring in $build" cmake --preset default -B "$build" -DHYS_BUILD_TESTS=OFF
step "building" cmake --build "$build"
if [ ! -x "$build/hyscale" ]; then
    echo "demo: the hyscale command was not built, since $(cmake --preset default -B "$build" | grep -m 1 'no hyscale command' | cut -c 4-)" >&2
    exit 1
fi

export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$PWD/$build/pocl}
mkdir -p "$POCL_CACHE_DIR"
exec "$build/hyscale" demo tools/models/smollm2_layers.safetensors "$@"
