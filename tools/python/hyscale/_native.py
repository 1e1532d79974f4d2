"""libhyscale as ctypes sees it: structs in the order of the headers, functions with their types."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

from ._version import __version__

STATUSES = (
    "OK INVALID_ARGUMENT UNSUPPORTED OUT_OF_MEMORY WORKSPACE_TOO_SMALL NO_PLATFORM NO_DEVICE DEVICE_FAILED BUILD_FAILED IO FORMAT "
    "VERSION_MISMATCH CANCELLED FORKED INTERNAL"
).split()
OPERATIONS = (
    "select select_coarse select_coarse_to_fine attention_forward attention_backward indexer_loss pool pool_backward merge fidelity"
).split()
DTYPES = {"f32": 1, "f16": 2, "bf16": 3, "f8e4m3": 4, "i32": 5}
METHODS = {None: 0, "exact": 1, "coarse": 2, "coarse_to_fine": 3}
ACTIVATIONS = {"relu": 0, "none": 1}
POOLINGS = {"mean": 0, "gated": 1, "overlapped": 2, "bounds": 3}
POOL_UNITS = {"entries": 0, "blocks": 1}
PHASES = ("dense", "coarse", "coarse_to_fine", "exact")
PASSES = {"forward": 0, "recompute": 1, "backward": 2}
SOURCES = ("none", "select", "reuse")

ATTENDING_DENSE = 1
BATCH_CAUSAL = 1
GRAD_ACCUMULATE = 1
LOSS_DENSE = 2
GROUPS_MAX = 256


class HyscaleError(RuntimeError):
    """A status of the library other than HYS_OK, with its message."""

    def __init__(self, status: int, message: str) -> None:
        self.status = STATUSES[status] if 0 <= status < len(STATUSES) else f"status {status}"
        super().__init__(f"{message} [{self.status}]")


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("native", c_int32), ("message", c_char * 256)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("host", c_void_p), ("buffer", c_void_p), ("offset", c_int64), ("dtype", c_int), ("rank", c_int32),
        ("shape", c_int64 * 4), ("stride", c_int64 * 4),
    ]


class Scoring(ctypes.Structure):
    _fields_ = [
        ("heads", c_int32), ("dim", c_int32), ("groups", c_int32), ("block", c_int32), ("pool", c_int32), ("dtype", c_int),
        ("activation", c_int), ("scale", c_double),
    ]


class Choosing(ctypes.Structure):
    _fields_ = [
        ("topk_max", c_int32), ("first_blocks", c_int32), ("local_blocks", c_int32), ("method", c_int), ("coarse_block", c_int32),
        ("coarse_keep", c_int32),
    ]


class Attending(ctypes.Structure):
    _fields_ = [
        ("heads", c_int32), ("kv_heads", c_int32), ("head_dim", c_int32), ("value_dim", c_int32), ("granularity", c_int32),
        ("window", c_int32), ("first", c_int32), ("dtype", c_int), ("scale", c_double), ("softcap", c_double), ("flags", c_uint32),
    ]


class Sized(ctypes.Structure):
    """A struct whose first field is its own size."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


class NativeProblem(Sized):
    _fields_ = [("struct_size", c_size_t), ("scoring", Scoring), ("choosing", Choosing), ("attending", Attending)]


class ContextOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("devices", c_char_p), ("cache_dir", c_char_p), ("disable", c_char_p), ("threads", c_int32),
        ("allocate", c_void_p), ("release", c_void_p), ("allocate_user", c_void_p), ("log", c_void_p), ("log_user", c_void_p),
        ("natives", c_void_p), ("native_count", c_int32),
    ]


class DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("backend", c_char * 16), ("name", c_char * 96), ("vendor", c_char * 64), ("driver", c_char * 96), ("id", c_char * 64),
        ("kind", c_int), ("compute_units", c_int32), ("numa_node", c_int32), ("memory_bytes", c_int64),
        ("max_allocation_bytes", c_int64), ("local_memory_bytes", c_int64), ("nominal_flops_per_s", c_double), ("cpus", c_char * 64),
        ("capabilities", c_char * 256), ("reason", c_char * 192),
    ]


class PlanOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("operations", c_uint32), ("flags", c_uint32), ("devices", POINTER(c_int32)),
        ("device_count", c_int32), ("rows_max", c_int64), ("keys_max", c_int64), ("window_keys_max", c_int64), ("effort", c_int),
        ("memory_limit_bytes", c_int64), ("kernels", c_char_p), ("progress", c_void_p), ("progress_user", c_void_p),
    ]


class Cost(ctypes.Structure):
    _fields_ = [
        ("flops", c_double), ("bytes", c_double), ("time_s", c_double), ("tensor_bytes", c_int64), ("workspace_bytes", c_int64),
        ("peak_bytes", c_int64),
    ]


class BatchDesc(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("rows", c_int64), ("keys", c_int64), ("flags", c_uint32), ("window", c_int32),
        ("documents", c_int32), ("cu_seqlens_q", c_void_p), ("cu_seqlens_k", c_void_p), ("positions", c_void_p),
        ("row_begin", c_void_p), ("row_end", c_void_p), ("index_begin", c_void_p), ("index_end", c_void_p), ("entries", c_int64),
        ("window_begin", c_void_p), ("window_end", c_void_p), ("window_keys", c_int64),
    ]


class Args(Sized):
    """An args struct: `struct_size`, a row range, then what the operation has."""

    tensors: tuple[str, ...] = ()


def _args(name: str, *fields: tuple[str, object] | str) -> type[Args]:
    """An args struct; a bare name is a tensor."""
    whole: list[tuple[str, object]] = [("struct_size", c_size_t), ("row_first", c_int64), ("row_count", c_int64)]
    whole += [(field, Tensor) if isinstance(field, str) else field for field in fields]
    tensors = tuple(field for field in fields if isinstance(field, str))
    return type(name, (Args,), {"_fields_": whole, "tensors": tensors})


SelectArgs = _args(
    "SelectArgs", ("method", c_int), ("topk", POINTER(c_int32)), "index_q", "index_k", "index_w", "index_q_scale", "index_k_scale",
    "indices", "counts", "scores", "kth", "nan_rows")
AttentionArgs = _args(
    "AttentionArgs", "q", "k", "v", "indices", "sink", "window_k", "window_v", "o", "lse")
AttentionGradArgs = _args(
    "AttentionGradArgs", ("flags", c_uint32), "q", "k", "v", "indices", "sink", "window_k", "window_v", "o", "lse", "grad_o", "dq",
    "dk", "dv", "dsink", "dwindow_k", "dwindow_v")
LossArgs = _args(
    "LossArgs", ("flags", c_uint32), ("reduction", c_int), ("coefficient", c_double), ("divisor", c_double), ("row_stride", c_int32),
    ("row_offset", c_int32), "index_q", "index_k", "index_w", "indices", "q", "k", "lse", "sink", "scores", "teacher_in", "loss",
    "d_index_q", "d_index_k", "d_index_w", "teacher_out")
PoolArgs = _args(
    "PoolArgs", ("pooling", c_int), ("unit", c_int), "x", "gate", "bias", "y", "norm", "radius", "lowest", "highest")
PoolGradArgs = _args(
    "PoolGradArgs", ("flags", c_uint32), ("pooling", c_int), ("unit", c_int), "x", "gate", "bias", "grad_y", "dx", "dgate", "dbias")
MergeArgs = _args("MergeArgs", "o_a", "o_b", "lse_a", "lse_b", "o", "lse")
FidelityArgs = _args(
    "FidelityArgs", ("row_stride", c_int32), ("row_offset", c_int32), ("target_mass", c_double), "q", "k", "indices", "reference",
    "mass", "recall", "topk_needed")


class SchedulePiece(ctypes.Structure):
    _fields_ = [
        ("step", c_int64), ("phase", c_int), ("topk", c_int32), ("topk_end", c_int32), ("density", c_double),
        ("density_end", c_double), ("loss_row_stride", c_int32),
    ]


class ScheduleOverride(ctypes.Structure):
    _fields_ = [
        ("layer_first", c_int32), ("layer_count", c_int32), ("group_first", c_int32), ("group_count", c_int32), ("factor", c_double),
        ("topk_least", c_int32), ("topk_most", c_int32),
    ]


class ScheduleOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("steps", c_int64), ("layers", c_int32), ("groups", c_int32), ("topk_max", c_int32),
        ("block", c_int32), ("coarse_block", c_int32), ("pieces", POINTER(SchedulePiece)), ("piece_count", c_int32),
        ("overrides", POINTER(ScheduleOverride)), ("override_count", c_int32), ("share_every", c_int32),
        ("source_layers", POINTER(c_int32)), ("key_period", c_int64), ("recall_floor", c_double), ("overlap_floor", c_double),
        ("loss_limit", c_double), ("shrink", c_double), ("grow", c_double), ("smoothing", c_double), ("feedback_period", c_int64),
    ]


class ScheduleQuestion(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("step", c_int64), ("data", c_int64), ("keys", c_int64), ("layer", c_int32), ("pass_", c_int),
    ]


class NativeDecision(ctypes.Structure):
    _fields_ = [
        ("phase", c_int), ("source", c_int), ("source_layer", c_int32), ("source_data", c_int64), ("method", c_int),
        ("granularity", c_int32), ("topk", c_int32 * GROUPS_MAX), ("key_step", c_int32), ("measure", c_int32),
        ("loss_flags", c_uint32), ("row_stride", c_int32), ("row_offset", c_int32),
    ]


class ScheduleFeedback(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("step", c_int64), ("keys", c_int64), ("layer", c_int32), ("group", c_int32),
        ("recall", c_double), ("overlap", c_double), ("loss", c_double),
    ]


# name, result, arguments; c_int results are statuses and raise.
_FUNCTIONS: list[tuple[str, object, list[object]]] = [
    ("hys_version_number", "plain", []),
    ("hys_context_create", c_int, [POINTER(ContextOptions), POINTER(c_void_p), POINTER(Error)]),
    ("hys_context_destroy", None, [c_void_p]),
    ("hys_context_device_count", c_int32, [c_void_p]),
    ("hys_context_device_info", c_int, [c_void_p, c_int32, POINTER(DeviceInfo), POINTER(Error)]),
    ("hys_problem_named", c_int, [c_char_p, POINTER(NativeProblem), POINTER(Error)]),
    ("hys_problem_complete", c_int, [POINTER(NativeProblem), POINTER(Error)]),
    ("hys_plan_create", c_int, [c_void_p, POINTER(NativeProblem), POINTER(PlanOptions), POINTER(c_void_p), POINTER(Error)]),
    ("hys_plan_destroy", None, [c_void_p]),
    ("hys_plan_kernel", c_char_p, [c_void_p, c_int, c_int32]),
    ("hys_plan_cost", c_int, [c_void_p, c_int, c_void_p, POINTER(Cost), POINTER(Error)]),
    ("hys_plan_describe", c_size_t, [c_void_p, c_void_p, c_size_t]),
    ("hys_exec_create", c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)]),
    ("hys_exec_destroy", None, [c_void_p]),
    ("hys_exec_finish", c_int, [c_void_p, POINTER(Error)]),
    ("hys_batch_create", c_int, [c_void_p, POINTER(BatchDesc), POINTER(c_void_p), POINTER(Error)]),
    ("hys_batch_destroy", None, [c_void_p]),
    ("hys_batch_entries", c_int64, [c_void_p]),
    ("hys_batch_coarse_blocks", c_int64, [c_void_p]),
    ("hys_batch_key_pairs", c_int64, [c_void_p]),
    ("hys_select", c_int, [c_void_p, c_void_p, POINTER(SelectArgs), POINTER(Error)]),
    ("hys_attention_forward", c_int, [c_void_p, c_void_p, POINTER(AttentionArgs), POINTER(Error)]),
    ("hys_attention_backward", c_int, [c_void_p, c_void_p, POINTER(AttentionGradArgs), POINTER(Error)]),
    ("hys_indexer_loss", c_int, [c_void_p, c_void_p, POINTER(LossArgs), POINTER(Error)]),
    ("hys_pool", c_int, [c_void_p, c_void_p, POINTER(PoolArgs), POINTER(Error)]),
    ("hys_pool_backward", c_int, [c_void_p, c_void_p, POINTER(PoolGradArgs), POINTER(Error)]),
    ("hys_merge", c_int, [c_void_p, c_void_p, POINTER(MergeArgs), POINTER(Error)]),
    ("hys_fidelity", c_int, [c_void_p, c_void_p, POINTER(FidelityArgs), POINTER(Error)]),
    ("hys_schedule_create", c_int, [POINTER(ScheduleOptions), POINTER(c_void_p), POINTER(Error)]),
    ("hys_schedule_destroy", None, [c_void_p]),
    ("hys_schedule_decide", c_int, [c_void_p, POINTER(ScheduleQuestion), POINTER(NativeDecision), POINTER(Error)]),
    ("hys_schedule_feedback", c_int, [c_void_p, POINTER(ScheduleFeedback), POINTER(Error)]),
    ("hys_schedule_save", c_size_t, [c_void_p, c_void_p, c_size_t]),
    ("hys_schedule_load", c_int, [c_void_p, c_void_p, c_size_t, POINTER(Error)]),
    ("hys_schedule_describe", c_size_t, [c_void_p, c_void_p, c_void_p, c_size_t]),
]


def _candidates() -> list[str]:
    """Where the library may be: the named file, the package's own folder, the tree's build folders, the system."""
    here = Path(__file__).resolve().parent
    named = os.environ.get("HYSCALE_LIBRARY")
    if named:
        return [named]
    found = [str(here / "libhyscale.so")]
    if len(here.parents) > 2:
        found += sorted(str(path) for path in here.parents[2].glob("build/*/libhyscale.so"))
    system = ctypes.util.find_library("hyscale")
    return [path for path in found if Path(path).exists()] + [name for name in (system, "libhyscale.so") if name]


def _check_version(library: ctypes.CDLL, path: str) -> None:
    number = library.hys_version_number()
    major, minor = (int(part) for part in __version__.split(".")[:2])
    if (number // 10000, number // 100 % 100) != (major, minor):
        raise ImportError(f"{path} is hyscale {number // 10000}.{number // 100 % 100}, this package is for {major}.{minor}")


def _load() -> ctypes.CDLL:
    problems = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            library.hys_version_number.restype = c_int
            _check_version(library, path)
        except (OSError, AttributeError) as error:
            problems.append(str(error) if str(error).startswith(f"{path}: ") else f"{path}: {error}")
            continue
        for name, result, arguments in _FUNCTIONS:
            function = getattr(library, name)
            function.restype = c_int if result == "plain" else result
            function.argtypes = arguments
        return library
    raise ImportError(
        "libhyscale.so was not found; build it (cmake --preset default && cmake --build build/default) or set HYSCALE_LIBRARY to the "
        "file" + "".join("\n  " + problem for problem in problems))


library = _load()


def call(name: str, *arguments: object) -> None:
    """Calls a function that answers a status; raises HyscaleError unless it is HYS_OK."""
    error = Error()
    status = getattr(library, name)(*arguments, ctypes.byref(error))
    if status:
        raise HyscaleError(status, error.message.decode(errors="replace"))


def text_of(name: str, *arguments: object) -> str:
    """The text of a function that works as snprintf does."""
    function = getattr(library, name)
    size = function(*arguments, None, 0) + 1
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, buffer, size)
    return buffer.value.decode()
