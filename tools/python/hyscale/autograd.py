"""Differentiable operations for torch: sparse_attention, indexer_loss, pool. First derivatives only."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .core import Batch, Plan

__all__ = ["sparse_attention", "indexer_loss", "pool"]


def _first_derivative(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses create_graph=True, where torch would take these gradients for constants and leave the second derivative out silently."""

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("hyscale has first derivatives only: create_graph=True (double backward) is not supported")
        return backward(ctx, *gradients)

    return checked


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, batch: Batch, indices: Any, q: Any, k: Any, v: Any, sink: Any, window_k: Any, window_v: Any) -> Any:
        o, lse = plan.attention_forward(batch, q, k, v, indices, sink=sink, window_k=window_k, window_v=window_v)
        ctx.plan, ctx.batch = plan, batch
        ctx.save_for_backward(indices, q, k, v, sink, window_k, window_v, o, lse)
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @_first_derivative
    def backward(ctx: Any, grad_o: Any, _grad_lse: Any) -> Any:
        indices, q, k, v, sink, window_k, window_v, o, lse = ctx.saved_tensors
        made = ctx.plan.attention_backward(
            ctx.batch, grad_o, q, k, v, indices, o, lse, sink=sink, window_k=window_k, window_v=window_v)
        names = ("dq", "dk", "dv", "dsink", "dwindow_k", "dwindow_v")
        return (None, None, None, *(made.get(name) for name in names))


def sparse_attention(
    plan: Plan, batch: Batch, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, indices: torch.Tensor | None = None, *,
    sink: torch.Tensor | None = None, window_k: torch.Tensor | None = None, window_v: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention over the chosen keys: q [T,H,D], k [S,G,D], v [S,G,V] (None = k[..., :V]), indices i32 [T,U,K].

    Returns o [T,H,V], differentiable to q, k, v, sink, window_k and window_v, and lse f32 [T,H], which is not differentiable.
    The plan's problem says dense, window, granularity and dtype. A second derivative is refused.
    """
    made: tuple[torch.Tensor, torch.Tensor] = _Attention.apply(plan, batch, indices, q, k, v, sink, window_k, window_v)  # type: ignore[no-untyped-call]
    return made


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, batch: Batch, others: dict[str, Any], index_q: Any, index_k: Any, index_w: Any) -> Any:
        needed = any(ctx.needs_input_grad[3:])
        made = plan.indexer_loss(batch, index_q, index_k, index_w, gradients=needed, **others)
        ctx.save_for_backward(*(made.get(name) for name in ("d_index_q", "d_index_k", "d_index_w")))
        return made["loss"].reshape(())

    @staticmethod
    @_first_derivative
    def backward(ctx: Any, grad: Any) -> Any:
        scaled = (None if saved is None else (saved.float() * grad).to(saved.dtype) for saved in ctx.saved_tensors)
        return (None, None, None, *scaled)


def indexer_loss(
    plan: Plan, batch: Batch, index_q: torch.Tensor, index_k: torch.Tensor, index_w: torch.Tensor | None, q: torch.Tensor,
    k: torch.Tensor, indices: torch.Tensor | None = None, *, lse: torch.Tensor | None = None, sink: torch.Tensor | None = None,
    scores: torch.Tensor | None = None, coefficient: float = 1.0, divisor: float = 0.0, row_stride: int = 0, row_offset: int = 0,
) -> torch.Tensor:
    """KL(attention's shares || softmax of index scores), a scalar, differentiable to index_q [T,HI,DI], index_k [E,DI], index_w [T,HI].

    q and k get no gradient: the attention is the teacher. Without indices the set is every visible entry (dense warm-up). The mean divides
    by `divisor`; 0 = the (row, group) that are not empty, which have to be found first. Gradients are computed together with the loss. A second derivative is refused.
    """
    others = dict(
        q=q.detach(), k=k.detach(), indices=indices, lse=lse, sink=sink, scores=scores, coefficient=coefficient, divisor=divisor,
        row_stride=row_stride, row_offset=row_offset)
    made: torch.Tensor = _Loss.apply(plan, batch, others, index_q, index_k, index_w)  # type: ignore[no-untyped-call]
    return made


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, batch: Batch, pooling: str, unit: str, x: Any, gate: Any, bias: Any) -> Any:
        ctx.plan, ctx.batch, ctx.pooling, ctx.unit = plan, batch, pooling, unit
        ctx.save_for_backward(x, gate, bias)
        return plan.pool(batch, x, gate, bias, pooling=pooling, unit=unit)

    @staticmethod
    @_first_derivative
    def backward(ctx: Any, grad_y: Any) -> Any:
        x, gate, bias = ctx.saved_tensors
        made = ctx.plan.pool_backward(ctx.batch, grad_y, x, gate, bias, pooling=ctx.pooling, unit=ctx.unit)
        return (None, None, None, None, made["dx"], made.get("dgate"), made.get("dbias"))


def pool(
    plan: Plan, batch: Batch, x: torch.Tensor, gate: torch.Tensor | None = None, bias: torch.Tensor | None = None, *,
    pooling: str = "mean", unit: str = "entries",
) -> torch.Tensor:
    """Keys into entries (or entries into coarse blocks): x [S,C] -> [E,C]; "mean", "gated" or "overlapped" (x, gate 2C wide)."""
    made: torch.Tensor = _Pool.apply(plan, batch, pooling, unit, x, gate, bias)  # type: ignore[no-untyped-call]
    return made
