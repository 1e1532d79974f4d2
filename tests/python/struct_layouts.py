"""Compares every struct of the binding with what a C compiler makes of the headers. Usage: struct_layouts.py CC INCLUDE_FOLDER"""
from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

from hyscale import _native

STRUCTS = {
    "hys_error": _native.Error, "hys_tensor": _native.Tensor, "hys_scoring": _native.Scoring, "hys_choosing": _native.Choosing,
    "hys_attending": _native.Attending, "hys_problem": _native.NativeProblem, "hys_context_options": _native.ContextOptions,
    "hys_device_info": _native.DeviceInfo, "hys_plan_options": _native.PlanOptions, "hys_cost": _native.Cost,
    "hys_batch_desc": _native.BatchDesc, "hys_select_args": _native.SelectArgs, "hys_attention_args": _native.AttentionArgs,
    "hys_attention_grad_args": _native.AttentionGradArgs, "hys_loss_args": _native.LossArgs, "hys_pool_args": _native.PoolArgs,
    "hys_pool_grad_args": _native.PoolGradArgs, "hys_merge_args": _native.MergeArgs, "hys_fidelity_args": _native.FidelityArgs,
    "hys_schedule_piece": _native.SchedulePiece, "hys_schedule_override": _native.ScheduleOverride,
    "hys_schedule_options": _native.ScheduleOptions, "hys_schedule_question": _native.ScheduleQuestion,
    "hys_decision": _native.NativeDecision, "hys_schedule_feedback": _native.ScheduleFeedback,
}
ENUMS = {
    **{f"HYS_{name}": i for i, name in enumerate(_native.STATUSES)}, "HYS_STATUS_COUNT": len(_native.STATUSES),
    **{f"HYS_OP_{name.upper()}": i for i, name in enumerate(_native.OPERATIONS)}, "HYS_OP_COUNT": len(_native.OPERATIONS),
    **{f"HYS_{name.upper()}": number for name, number in _native.DTYPES.items()},
    **{f"HYS_METHOD_{(name or 'default').upper()}": number for name, number in _native.METHODS.items()},
    **{f"HYS_PHASE_{name.upper()}": i for i, name in enumerate(_native.PHASES)}, "HYS_PHASE_COUNT": len(_native.PHASES),
    **{f"HYS_POOL_{name.upper()}": number for name, number in {**_native.POOLINGS, **_native.POOL_UNITS}.items()},
    **{f"HYS_PASS_{name.upper()}": number for name, number in _native.PASSES.items()},
    **{f"HYS_SOURCE_{name.upper()}": i for i, name in enumerate(_native.SOURCES)},
    "HYS_ATTENDING_DENSE": _native.ATTENDING_DENSE, "HYS_BATCH_CAUSAL": _native.BATCH_CAUSAL, "HYS_LOSS_DENSE": _native.LOSS_DENSE,
    "HYS_GRAD_ACCUMULATE": _native.GRAD_ACCUMULATE, "HYS_SCHEDULE_GROUPS_MAX": _native.GROUPS_MAX,
}


def expected() -> list[str]:
    lines = []
    for name, struct in STRUCTS.items():
        lines.append(f"{name} {ctypes.sizeof(struct)}")
        lines += [f"{name}.{field[0].rstrip('_')} {getattr(struct, field[0]).offset}" for field in struct._fields_]
    return lines + [f"{name} {number}" for name, number in ENUMS.items()]


def source() -> str:
    lines = ['#include <stdio.h>', '#include "hyscale/hyscale.h"', "int main(void)", "{"]
    for name, struct in STRUCTS.items():
        lines.append(f'\tprintf("{name} %zu\\n", sizeof(struct {name}));')
        for field in struct._fields_:
            field_name = field[0].rstrip("_")
            lines.append(f'\tprintf("{name}.{field_name} %zu\\n", offsetof(struct {name}, {field_name}));')
    lines += [f'\tprintf("{name} %d\\n", (int){name});' for name in ENUMS]
    return "\n".join([*lines, "\treturn 0;", "}", ""])


def main() -> None:
    compiler, include = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "layouts")
        Path(folder, "layouts.c").write_text(source())
        subprocess.run([compiler, "-I", include, "-o", program, f"{program}.c"], check=True)
        found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = [f"{have}, expected {want}" for have, want in zip(expected(), found) if have != want]
    print("\n".join(wrong) or f"{len(found)} sizes, offsets and numbers are those of the headers")
    sys.exit(bool(wrong) or len(found) != len(expected()))


main()
