"""When to choose how, over a training run: the library's schedule (hyscale/schedule.h)."""
from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence

from . import _native
from ._native import call
from .core import Plan, _pick

__all__ = ["Decision", "Override", "Piece", "Schedule"]


@dataclasses.dataclass(frozen=True)
class Piece:
    """From `step` to the next piece: phase ("dense", "coarse", "coarse_to_fine", "exact"), entries per row (topk, in a straight line
    to topk_end) or a share of all entries (density), and one row in loss_row_stride for the loss."""

    step: int
    phase: str
    topk: int = 0
    topk_end: int = 0
    density: float = 0.0
    density_end: float = 0.0
    loss_row_stride: int = 0


@dataclasses.dataclass(frozen=True)
class Override:
    """Another K for some layers and groups; a count of 0 = to the last."""

    layer_first: int = 0
    layer_count: int = 0
    group_first: int = 0
    group_count: int = 0
    factor: float = 0.0
    topk_least: int = 0
    topk_most: int = 0


@dataclasses.dataclass(frozen=True)
class Decision:
    """What to do in a step and layer."""

    phase: str
    source: str  # "none" (dense), "select", or "reuse" the selection of source_layer for source_data
    source_layer: int
    source_data: int
    method: str | None  # of Plan.select
    granularity: int  # entries that one index stands for
    topk: list[int]  # indices, per group
    key_step: bool
    measure: bool  # feedback is wanted
    dense_loss: bool
    row_stride: int
    row_offset: int


class Schedule:
    """A pure state machine: the same options and feedback give the same decisions. state_dict() is bytes."""

    def __init__(
        self, *, steps: int, layers: int, pieces: Sequence[Piece], overrides: Sequence[Override] = (), groups: int = 1,
        topk_max: int = 0, block: int = 0, coarse_block: int = 0, share_every: int = 0, source_layers: Sequence[int] | None = None,
        key_period: int = 0, recall_floor: float = 0.0, overlap_floor: float = 0.0, loss_limit: float = 0.0, shrink: float = 0.0,
        grow: float = 0.0, smoothing: float = 0.0, feedback_period: int = 0,
    ) -> None:
        self._handle = ctypes.c_void_p()
        self.groups = groups
        phases = {name: i for i, name in enumerate(_native.PHASES)}
        natives = (_native.SchedulePiece * max(len(pieces), 1))(*(
            _native.SchedulePiece(p.step, _pick("phase", p.phase, phases), p.topk, p.topk_end, p.density, p.density_end, p.loss_row_stride)
            for p in pieces))
        others = (_native.ScheduleOverride * max(len(overrides), 1))(*(
            _native.ScheduleOverride(*dataclasses.astuple(override)) for override in overrides))
        options = _native.ScheduleOptions(
            steps=steps, layers=layers, groups=groups, topk_max=topk_max, block=block, coarse_block=coarse_block, pieces=natives,
            piece_count=len(pieces), overrides=others, override_count=len(overrides), share_every=share_every, key_period=key_period,
            recall_floor=recall_floor, overlap_floor=overlap_floor, loss_limit=loss_limit, shrink=shrink, grow=grow, smoothing=smoothing,
            feedback_period=feedback_period)
        if source_layers is not None:
            if len(source_layers) != layers:
                raise ValueError(f"source_layers has {len(source_layers)} numbers, expected {layers}, one for each layer")
            options.source_layers = (ctypes.c_int32 * layers)(*source_layers)
        call("hys_schedule_create", ctypes.byref(options), ctypes.byref(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _native.library.hys_schedule_destroy(self._handle)
            self._handle = ctypes.c_void_p()

    def decide(self, step: int, layer: int, *, data: int = 0, keys: int = 0, pass_: str = "forward") -> Decision:
        """`data` numbers the micro-batch, `keys` the entries of its longest row (for densities), pass_ is "forward", "recompute" or
        "backward"."""
        question = _native.ScheduleQuestion(step=step, data=data, keys=keys, layer=layer, pass_=_pick("pass_", pass_, _native.PASSES))
        native = _native.NativeDecision()
        call("hys_schedule_decide", self._handle, ctypes.byref(question), ctypes.byref(native))
        methods = {number: name for name, number in _native.METHODS.items()}
        return Decision(
            _native.PHASES[native.phase], _native.SOURCES[native.source], native.source_layer, native.source_data, methods[native.method],
            native.granularity, list(native.topk[:self.groups]), bool(native.key_step), bool(native.measure),
            bool(native.loss_flags & _native.LOSS_DENSE), native.row_stride, native.row_offset)

    def feedback(
        self, step: int, layer: int, *, keys: int = 0, group: int = -1, recall: float = -1.0, overlap: float = -1.0, loss: float = -1.0,
    ) -> None:
        """What was seen of a layer (and group, -1 = all); a value below 0 was not measured."""
        native = _native.ScheduleFeedback(
            step=step, keys=keys, layer=layer, group=group, recall=recall, overlap=overlap, loss=loss)
        call("hys_schedule_feedback", self._handle, ctypes.byref(native))

    def state_dict(self) -> bytes:
        """What was learned; for a schedule made with the same options, on any machine."""
        size = _native.library.hys_schedule_save(self._handle, None, 0)
        buffer = ctypes.create_string_buffer(size)
        _native.library.hys_schedule_save(self._handle, buffer, size)
        return buffer.raw

    def load_state_dict(self, state: bytes) -> None:
        call("hys_schedule_load", self._handle, bytes(state), len(state))

    def describe(self, plan: Plan | None = None) -> str:
        """The run as a table, priced when a plan is given."""
        return _native.text_of("hys_schedule_describe", self._handle, plan._handle if plan else None)
