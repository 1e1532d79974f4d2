"""Learned sparse attention on any device: choose keys, attend to them, train what chooses.

    import hyscale, torch
    problem = hyscale.Problem(index_heads=4, index_dim=64, topk_max=64, heads=8, kv_heads=1, head_dim=64)
    plan = hyscale.Plan(problem, rows=1024, keys=1024)
    batch = plan.batch(1024)                                   # one causal document
    chosen = hyscale.select(plan, batch, index_q, index_k, index_w)
    o, lse = hyscale.sparse_attention(plan, batch, q, k, v, chosen.indices)          # autograd
    loss = hyscale.indexer_loss(plan, batch, index_q, index_k, index_w, q, k, chosen.indices, lse=lse)

Arrays are NumPy arrays or torch CPU tensors, read and written where they lie. Host tensors only: for buffers on a device use the C API.
The library is found through HYSCALE_LIBRARY, in the tree's build folders, or where the system keeps libraries.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._native import HyscaleError
from ._version import __version__
from .core import Batch, Context, Cost, Fidelity, Plan, Problem, Selection
from .schedule import Decision, Override, Piece, Schedule

if TYPE_CHECKING:
    from .autograd import indexer_loss, pool, sparse_attention

__all__ = [
    "Batch", "Context", "Cost", "Decision", "Fidelity", "HyscaleError", "Override", "Piece", "Plan", "Problem", "Schedule", "Selection",
    "__version__", "indexer_loss", "plan", "pool", "select", "sparse_attention",
]


def plan(problem: Problem, rows: int, keys: int, **options: Any) -> Plan:
    """A Plan; see there."""
    return Plan(problem, rows, keys, **options)


def select(plan: Plan, batch: Batch, index_q: Any, index_k: Any, index_w: Any = None, **options: Any) -> Selection:
    """Plan.select: index_q [T,HI,DI], index_k [E,DI], index_w f32 [T,HI] -> indices [T,U,K], counts, scores, kth. No gradient."""
    return plan.select(batch, index_q, index_k, index_w, **options)


def __getattr__(name: str) -> Any:
    """The differentiable operations, which need torch, are imported when they are first used."""
    if name in ("sparse_attention", "indexer_loss", "pool"):
        from . import autograd

        return getattr(autograd, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
