"""Problem, context, plan and batch, and the operations on NumPy arrays or torch CPU tensors.

Letters in shapes: T query rows, S key rows, E entries (S when nothing is pooled), H query heads, G kv heads, D head dim, V value dim,
HI index heads, DI index dim, U index groups, K indices per row. Outputs are made in the framework of the inputs.
"""
from __future__ import annotations

import ctypes
import dataclasses
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from . import _arrays, _native
from ._native import call

__all__ = ["Problem", "Context", "Plan", "Batch", "Cost", "Selection", "Fidelity"]


@dataclasses.dataclass(frozen=True)
class Problem:
    """The mathematics. 0 means the library's default, and a part whose heads are 0 is not used (see hyscale/problem.h)."""

    index_heads: int = 0
    index_dim: int = 0
    index_groups: int = 0
    block: int = 0
    pool: int = 0
    index_dtype: str = "f32"
    activation: str = "relu"
    index_scale: float = 0.0
    topk_max: int = 0
    first_blocks: int = 0
    local_blocks: int = 0
    method: str | None = None
    coarse_block: int = 0
    coarse_keep: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    granularity: int = 0
    window: int = 0
    first: int = 0
    dtype: str = "f32"
    scale: float = 0.0
    softcap: float = 0.0
    dense: bool = False

    @staticmethod
    def named(name: str) -> Problem:
        """The shapes of a published model: "dsv32", "glm5", "msa", "smollm2", ..."""
        native = _native.NativeProblem()
        call("hys_problem_named", name.encode(), ctypes.byref(native))
        native.struct_size = ctypes.sizeof(native)
        return Problem._from_native(native)

    def _as_native(self) -> _native.NativeProblem:
        native = _native.NativeProblem()
        native.scoring = _native.Scoring(
            self.index_heads, self.index_dim, self.index_groups, self.block, self.pool, _pick("index_dtype", self.index_dtype, _native.DTYPES),
            _pick("activation", self.activation, _native.ACTIVATIONS), self.index_scale)
        native.choosing = _native.Choosing(
            self.topk_max, self.first_blocks, self.local_blocks, _pick("method", self.method, _native.METHODS), self.coarse_block,
            self.coarse_keep)
        native.attending = _native.Attending(
            self.heads, self.kv_heads, self.head_dim, self.value_dim, self.granularity, self.window, self.first,
            _pick("dtype", self.dtype, _native.DTYPES), self.scale, self.softcap, _native.ATTENDING_DENSE if self.dense else 0)
        return native

    @staticmethod
    def _from_native(native: _native.NativeProblem) -> Problem:
        s, c, a = native.scoring, native.choosing, native.attending
        return Problem(
            s.heads, s.dim, s.groups, s.block, s.pool, _name_of(_native.DTYPES, s.dtype or 1), _name_of(_native.ACTIVATIONS, s.activation),
            s.scale, c.topk_max, c.first_blocks, c.local_blocks, _name_of(_native.METHODS, c.method), c.coarse_block, c.coarse_keep,
            a.heads, a.kv_heads, a.head_dim, a.value_dim, a.granularity, a.window, a.first, _name_of(_native.DTYPES, a.dtype or 1),
            a.scale, a.softcap, bool(a.flags & _native.ATTENDING_DENSE))

    def completed(self) -> Problem:
        """With every default filled in; raises when it is not legal."""
        native = self._as_native()
        call("hys_problem_complete", ctypes.byref(native))
        return Problem._from_native(native)


def _pick(field: str, value: Any, table: dict[Any, int]) -> int:
    if value not in table:
        raise ValueError(f"{field} is {value!r}, expected one of {', '.join(repr(key) for key in table)}")
    return table[value]


def _name_of(table: dict[Any, int], number: int) -> Any:
    return next(key for key, value in table.items() if value == number)


class Context:
    """Devices. `devices` is a list as "openmp" or "opencl:0,openmp"; None finds all. `disable` masks capabilities ("avx512")."""

    def __init__(self, devices: str | None = None, *, threads: int = 0, disable: str | None = None) -> None:
        self._handle = ctypes.c_void_p()
        options = _native.ContextOptions(
            devices=None if devices is None else devices.encode(), threads=threads,
            disable=None if disable is None else disable.encode())
        call("hys_context_create", ctypes.byref(options), ctypes.byref(self._handle))

    def devices(self) -> list[str]:
        """Backend and name of each device, in order."""
        names = []
        for i in range(_native.library.hys_context_device_count(self._handle)):
            info = _native.DeviceInfo()
            call("hys_context_device_info", self._handle, i, ctypes.byref(info))
            names.append(f"{info.backend.decode()}: {info.name.decode()}")
        return names

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _native.library.hys_context_destroy(self._handle)
            self._handle = ctypes.c_void_p()


class Cost(NamedTuple):
    """One call over all rows, predicted."""

    flops: float
    bytes: float
    time_s: float
    tensor_bytes: int
    workspace_bytes: int
    peak_bytes: int


class Selection(NamedTuple):
    """What each row and group chose, ascending, -1 behind `counts`."""

    indices: Any  # i32 [T,U,K]
    counts: Any  # i32 [T,U]
    scores: Any  # f32 [T,U,K], None when they were not asked for
    kth: Any  # f32 [T,U]


class Fidelity(NamedTuple):
    """Shares of dense attention, on the sampled rows only."""

    mass: Any  # f32 [rows,U]
    recall: Any  # f32 [rows,U], None without a reference
    topk_needed: Any  # i32 [rows,U]
    rows: range  # of the batch, what was sampled


class Plan:
    """How a problem is computed, for calls of up to `rows` query rows over `keys` key rows. Compiles and tests kernels, so keep it.

    One call at a time: calls from several threads wait for each other. `devices` are numbers of the context. `operations` limits what is
    planned, `kernels` forces kernels by name.
    """

    def __init__(
        self, problem: Problem, rows: int, keys: int, *, window_keys: int = 0, context: Context | None = None,
        devices: Sequence[int] | None = None, operations: Iterable[str] | None = None, kernels: str | None = None,
    ) -> None:
        self.context = context if context is not None else Context()
        self._handle, self._exec = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = threading.Lock()
        options = _native.PlanOptions(rows_max=rows, keys_max=keys, window_keys_max=window_keys)
        for name in operations or ():
            options.operations |= 1 << _operation(name)
        if devices is not None:
            numbers = (ctypes.c_int32 * len(devices))(*devices)
            options.devices, options.device_count = numbers, len(devices)
        if kernels is not None:
            options.kernels = kernels.encode()
        native = problem._as_native()
        call("hys_plan_create", self.context._handle, ctypes.byref(native), ctypes.byref(options), ctypes.byref(self._handle))
        call("hys_exec_create", self._handle, None, ctypes.byref(self._exec))
        self.problem = problem.completed()

    def __del__(self) -> None:
        if getattr(self, "_exec", None):
            _native.library.hys_exec_destroy(self._exec)
            self._exec = ctypes.c_void_p()
        if getattr(self, "_handle", None):
            _native.library.hys_plan_destroy(self._handle)
            self._handle = ctypes.c_void_p()

    def describe(self) -> str:
        """What runs where and why, as a table."""
        return _native.text_of("hys_plan_describe", self._handle)

    def kernel(self, operation: str) -> str | None:
        """The kernel that runs an operation on the first device; None when it is not planned."""
        name = _native.library.hys_plan_kernel(self._handle, _operation(operation), 0)
        return name.decode() if name else None

    def kernels(self) -> dict[str, str]:
        """The kernel of each planned operation, on the first device."""
        return {name: kernel for name in _native.OPERATIONS if (kernel := self.kernel(name))}

    def cost(self, operation: str, batch: Batch | None = None) -> Cost:
        """Price of one call; without a batch, of one causal document of the plan's largest size."""
        cost = _native.Cost()
        call("hys_plan_cost", self._handle, _operation(operation), batch._handle if batch else None, ctypes.byref(cost))
        return Cost(*(getattr(cost, field) for field in Cost._fields))

    def batch(self, rows: int, keys: int | None = None, **description: Any) -> Batch:
        """Which rows see which keys; see Batch."""
        return Batch(self, rows, rows if keys is None else keys, **description)

    # ---- operations ----

    def _run(self, name: str, args: _native.Args, batch: Batch, arrays: dict[str, Any], **plain: Any) -> None:
        """Fills an args struct, calls, waits."""
        if batch.plan is not self:
            raise ValueError("batch is another plan's")
        keep = []
        for field, value in plain.items():
            setattr(args, field, value)
        for field in args.tensors:
            array = arrays.pop(field, None)
            if array is not None:
                tensor, kept = _arrays.view(field, array)
                setattr(args, field, tensor)
                keep.append(kept)
        assert not arrays, f"no such tensors: {arrays}"
        with self._lock:
            call(name, self._exec, batch._handle, ctypes.byref(args))
            call("hys_exec_finish", self._exec)
        del keep

    def _topk(self, topk: int | Sequence[int] | None) -> list[int]:
        groups = self.problem.index_groups
        if topk is None:
            return [self.problem.topk_max] * groups
        values = [topk] * groups if isinstance(topk, int) else list(topk)
        if len(values) != groups:
            raise ValueError(f"topk has {len(values)} numbers, expected {groups}, one for each group")
        return values

    def select(
        self, batch: Batch, index_q: Any, index_k: Any, index_w: Any = None, *, topk: int | Sequence[int] | None = None,
        method: str | None = None, index_q_scale: Any = None, index_k_scale: Any = None, scores: bool = True,
    ) -> Selection:
        """The K best entries of each row and group: index_q [T,HI,DI], index_k [E,DI], index_w f32 [T,HI] (absent = 1).

        `scores=False` leaves the scores out, as large as the indices, which only indexer_loss has a use for.
        """
        wanted = self._topk(topk)
        groups, most, rows = len(wanted), max(wanted), len(index_q)
        made = Selection(
            _arrays.empty(index_q, "i32", rows, groups, most), _arrays.empty(index_q, "i32", rows, groups),
            _arrays.empty(index_q, "f32", rows, groups, most) if scores else None, _arrays.empty(index_q, "f32", rows, groups))
        numbers = (ctypes.c_int32 * groups)(*wanted)
        self._run("hys_select", _native.SelectArgs(), batch, dict(
            index_q=index_q, index_k=index_k, index_w=index_w, index_q_scale=index_q_scale, index_k_scale=index_k_scale,
            indices=made.indices, counts=made.counts, scores=made.scores, kth=made.kth),
            method=_pick("method", method, _native.METHODS), topk=numbers)
        return made

    def attention_forward(
        self, batch: Batch, q: Any, k: Any, v: Any = None, indices: Any = None, *, sink: Any = None, window_k: Any = None,
        window_v: Any = None,
    ) -> tuple[Any, Any]:
        """q [T,H,D], k [S,G,D], v [S,G,V] (absent = k[..., :V]), indices i32 [T,U,K] -> o [T,H,V], lse f32 [T,H]."""
        o = _arrays.empty(q, self.problem.dtype, len(q), self.problem.heads, self.problem.value_dim)
        lse = _arrays.empty(q, "f32", len(q), self.problem.heads)
        self._run("hys_attention_forward", _native.AttentionArgs(), batch, dict(
            q=q, k=k, v=v, indices=indices, sink=sink, window_k=window_k, window_v=window_v, o=o, lse=lse))
        return o, lse

    def attention_backward(
        self, batch: Batch, grad_o: Any, q: Any, k: Any, v: Any, indices: Any, o: Any, lse: Any, *, sink: Any = None,
        window_k: Any = None, window_v: Any = None,
    ) -> dict[str, Any]:
        """grad_o and o [T,H,V], lse f32 [T,H], the rest as forward took it -> gradients by name: dq [T,H,D], dk [S,G,D], dv [S,G,V]
        (with v), dsink f32 [H] (with sink), dwindow_k, dwindow_v."""
        like = dict(dq=q, dk=k, dv=v, dsink=sink, dwindow_k=window_k, dwindow_v=window_v)
        made = {
            name: _arrays.empty(q, "f32" if name == "dsink" else self.problem.dtype, *array.shape)
            for name, array in like.items() if array is not None}
        self._run("hys_attention_backward", _native.AttentionGradArgs(), batch, dict(
            q=q, k=k, v=v, indices=indices, sink=sink, window_k=window_k, window_v=window_v, o=o, lse=lse, grad_o=grad_o, **made))
        return made

    def indexer_loss(
        self, batch: Batch, index_q: Any, index_k: Any, index_w: Any, q: Any, k: Any, indices: Any = None, *, lse: Any = None,
        sink: Any = None, scores: Any = None, teacher: Any = None, coefficient: float = 1.0, divisor: float = 0.0, row_stride: int = 0,
        row_offset: int = 0, gradients: bool = True,
    ) -> dict[str, Any]:
        """KL of the attention's shares to the index scores' softmax: loss f32 [1] and d_index_q [T,HI,DI], d_index_k [E,DI], d_index_w
        [T,HI], from these, q [T,H,D], k [S,G,D], indices i32 [T,U,K], lse f32 [T,H].

        Without indices the set is every visible entry (dense warm-up). row_stride counts every so-many-th row only. The mean divides by
        `divisor`; 0 = the (row, group) that are not empty, which have to be found first.
        """
        made = {"loss": _arrays.empty(index_q, "f32", 1)}
        if gradients:
            made["d_index_q"] = _arrays.empty(index_q, self.problem.index_dtype, *index_q.shape)
            made["d_index_k"] = _arrays.empty(index_q, self.problem.index_dtype, *index_k.shape)
            if index_w is not None:
                made["d_index_w"] = _arrays.empty(index_q, "f32", *index_w.shape)
        self._run("hys_indexer_loss", _native.LossArgs(), batch, dict(
            index_q=index_q, index_k=index_k, index_w=index_w, indices=indices, q=q, k=k, lse=lse, sink=sink, scores=scores,
            teacher_in=teacher, **made),
            flags=_native.LOSS_DENSE if indices is None else 0, coefficient=coefficient, divisor=divisor, row_stride=row_stride,
            row_offset=row_offset)
        return made

    def _units(self, batch: Batch, unit: str) -> int:
        return batch.entries if unit == "entries" else batch.coarse_blocks

    def pool(self, batch: Batch, x: Any, gate: Any = None, bias: Any = None, *, pooling: str = "mean", unit: str = "entries") -> Any:
        """x [S,C] -> y [E,C] ("entries"), or [E,C] -> [blocks,C] ("blocks"); "gated", or "overlapped" with 2C channels."""
        kind = _pick("pooling", pooling, {key: value for key, value in _native.POOLINGS.items() if key != "bounds"})
        channels = x.shape[1] // 2 if pooling == "overlapped" else x.shape[1]
        dtype = _name_of(_native.DTYPES, _arrays.view("x", x)[0].dtype)
        y = _arrays.empty(x, dtype, self._units(batch, unit), channels)
        self._run("hys_pool", _native.PoolArgs(), batch, dict(x=x, gate=gate, bias=bias, y=y), pooling=kind,
                  unit=_pick("unit", unit, _native.POOL_UNITS))
        return y

    def pool_backward(
        self, batch: Batch, grad_y: Any, x: Any, gate: Any = None, bias: Any = None, *, pooling: str = "mean", unit: str = "entries",
    ) -> dict[str, Any]:
        """grad_y [E,C] -> gradients by name: dx [S,C], dgate [S,C] (with gate), dbias [slots of a pool,C] (with bias)."""
        dtype = _name_of(_native.DTYPES, _arrays.view("x", x)[0].dtype)
        made = {"dx": _arrays.empty(x, dtype, *x.shape)}
        if gate is not None:
            made["dgate"] = _arrays.empty(x, dtype, *gate.shape)
        if bias is not None:
            made["dbias"] = _arrays.empty(x, "f32", *bias.shape)
        self._run("hys_pool_backward", _native.PoolGradArgs(), batch, dict(x=x, gate=gate, bias=bias, grad_y=grad_y, **made),
                  pooling=_pick("pooling", pooling, _native.POOLINGS), unit=_pick("unit", unit, _native.POOL_UNITS))
        return made

    def merge(self, batch: Batch, o_a: Any, lse_a: Any, o_b: Any, lse_b: Any) -> tuple[Any, Any]:
        """Attention over two disjoint key sets as one: o [T,H,V] and lse f32 [T,H] of each -> o, lse."""
        o = _arrays.empty(o_a, self.problem.dtype, *o_a.shape)
        lse = _arrays.empty(o_a, "f32", *lse_a.shape)
        self._run("hys_merge", _native.MergeArgs(), batch, dict(o_a=o_a, o_b=o_b, lse_a=lse_a, lse_b=lse_b, o=o, lse=lse))
        return o, lse

    def fidelity(
        self, batch: Batch, q: Any, k: Any, indices: Any, reference: Any = None, *, row_stride: int = 1, row_offset: int = 0,
        target_mass: float = 0.0,
    ) -> Fidelity:
        """How much of dense attention (q [T,H,D], k [S,G,D]) a selection i32 [T,U,K] captures, on every row_stride-th row; recall is
        against `reference`, another selection."""
        groups = indices.shape[1]
        made = {
            "mass": _arrays.empty(q, "f32", len(q), groups), "topk_needed": _arrays.empty(q, "i32", len(q), groups)}
        if reference is not None:
            made["recall"] = _arrays.empty(q, "f32", len(q), groups)
        self._run("hys_fidelity", _native.FidelityArgs(), batch, dict(q=q, k=k, indices=indices, reference=reference, **made),
                  row_stride=row_stride, row_offset=row_offset, target_mass=target_mass)
        rows = range(row_offset, len(q), max(row_stride, 1))
        sampled = {name: array[row_offset::max(row_stride, 1)] for name, array in made.items()}
        return Fidelity(sampled["mass"], sampled.get("recall"), sampled["topk_needed"], rows)


def _operation(name: str) -> int:
    if name not in _native.OPERATIONS:
        raise ValueError(f"operation is {name!r}, expected one of {', '.join(_native.OPERATIONS)}")
    return _native.OPERATIONS.index(name)


class Batch:
    """Which of `rows` query rows see which of `keys` key rows: causal documents, or explicit intervals [row_begin, row_end).

    cu_seqlens_q and cu_seqlens_k are [documents + 1], from 0 to rows and keys; positions [rows] is each row's place in its document.
    """

    def __init__(
        self, plan: Plan, rows: int, keys: int, *, causal: bool = True, window: int = 0, cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None, positions: Any = None, row_begin: Any = None, row_end: Any = None, index_begin: Any = None,
        index_end: Any = None, entries: int = 0, window_begin: Any = None, window_end: Any = None, window_keys: int = 0,
    ) -> None:
        self.plan, self.rows, self.keys = plan, rows, keys
        self._handle = ctypes.c_void_p()
        explicit = row_begin is not None or row_end is not None
        desc = _native.BatchDesc(
            rows=rows, keys=keys, flags=_native.BATCH_CAUSAL if causal and not explicit else 0, window=window, entries=entries,
            window_keys=window_keys)
        arrays = dict(
            cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, positions=positions, row_begin=row_begin, row_end=row_end,
            index_begin=index_begin, index_end=index_end, window_begin=window_begin, window_end=window_end)
        keep = {name: _arrays.int32(name, values) for name, values in arrays.items() if values is not None}
        for name, array in keep.items():
            if not name.startswith("cu_") and len(array) != rows:
                raise ValueError(f"{name} has {len(array)} numbers, expected {rows}, one for each row")
            setattr(desc, name, array.ctypes.data)
        cu = [keep[name] for name in ("cu_seqlens_q", "cu_seqlens_k") if name in keep]
        if any(len(array) != len(cu[0]) or len(array) < 2 for array in cu):
            raise ValueError("cu_seqlens_q and cu_seqlens_k have documents + 1 numbers each, the same for both, and 2 at least")
        desc.documents = len(cu[0]) - 1 if cu else 0
        call("hys_batch_create", plan._handle, ctypes.byref(desc), ctypes.byref(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _native.library.hys_batch_destroy(self._handle)
            self._handle = ctypes.c_void_p()

    @property
    def entries(self) -> int:
        """E: pooled keys, or keys."""
        return int(_native.library.hys_batch_entries(self._handle))

    @property
    def coarse_blocks(self) -> int:
        return int(_native.library.hys_batch_coarse_blocks(self._handle))

    @property
    def key_pairs(self) -> int:
        """Visible (row, key) pairs."""
        return int(_native.library.hys_batch_key_pairs(self._handle))
