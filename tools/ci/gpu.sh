#!/usr/bin/env bash
. tools/ci/common.sh

none='no GPU with an OpenCL driver here'
[ -n "$(compgen -G '/dev/nvidia[0-9]*')$(compgen -G '/dev/dri/render*')$(compgen -G '/dev/kfd')$(compgen -G '/dev/dxg')" ] || skip_stage "$none" # before anything is built
build dev dev || finish
"$HYS_CI_ROOT/dev/hyscale" devices --json | grep -q '"usable":true,"backend":"opencl".*"kind":"gpu"' || skip_stage "$none"
log=$HYS_CI_FOLDER/table
CONFORMANCE_OUT=$HYS_CI_FOLDER/run tools/conformance.sh "$HYS_CI_ROOT/dev" 2>&1 | tee "$log"
if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
    passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]} skipped=${BASH_REMATCH[3]}
else
    fail 'the run gave no counts' "read $log"
fi
finish
