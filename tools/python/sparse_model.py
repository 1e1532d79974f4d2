"""SmolLM2-135M in torch with its attention done by libhyscale, and an indexer for every layer that learns what to attend to.

Projections, MLP, norms and the output matrix run on any torch device; selection, attention and the indexer's loss are calls of the
binding on CPU tensors, planned on the devices that are named. Letters in shapes are those of hyscale.core.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import hyscale
import smollm2

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
HEAD_ROWS = 1024  # rows whose logits exist at a time: 1,024 x 49,152 words is 192 MiB
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
ROLES = ("select", "attend", "dense", "loss", "fidelity")


@dataclasses.dataclass(frozen=True)
class How:
    """What a row attends to: everything ("dense"), the last `topk` keys ("window"), those and the first 4 ("anchored"), or what the
    indexer chooses ("sparse")."""

    kind: str
    topk: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "dense" else f"{self.kind} {self.topk}"


FIRST = 4  # keys of an anchored window that are the document's first


class Library:
    """Plans of the library, made when they are first needed, for calls of up to `rows` rows of whole documents.

    `devices` says where each of ROLES runs, as hyscale.Context takes it; `types` the types of index tensors ("index"), of what sparse
    attention and the loss read ("attend") and of dense attention ("dense").
    """

    def __init__(self, model: Model, devices: dict[str, str], rows: int, topk_max: int, coarse: tuple[int, int], types: dict[str, str]) -> None:
        self.model, self.devices, self.rows, self.topk_max, self.coarse, self.types = model, devices, rows, topk_max, coarse, types
        self.contexts = {name: hyscale.Context(name) for name in set(devices.values())}
        self.plans: dict[Any, hyscale.Plan] = {}
        self.batches: dict[Any, hyscale.Batch] = {}

    def problem(self, how: How, select: bool) -> hyscale.Problem:
        model = self.model
        attending = dict(heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim, dtype=self.types["attend"])
        if how.kind == "dense":
            return hyscale.Problem(dense=True, **{**attending, "dtype": self.types["dense"]})
        if how.kind in ("window", "anchored"):
            first = FIRST if how.kind == "anchored" else 0
            return hyscale.Problem(window=how.topk - first, first=first, **attending)
        scoring = dict(index_heads=model.index_heads, index_dim=model.index_dim, index_groups=model.kv_heads, index_dtype=self.types["index"])
        choosing = dict(topk_max=self.topk_max, coarse_block=self.coarse[0], coarse_keep=self.coarse[1])
        return hyscale.Problem(**scoring, **(choosing if select else {"topk_max": self.topk_max}), **attending)

    def plan(self, role: str, how: How, documents: tuple[int, ...]) -> tuple[hyscale.Plan, hyscale.Batch]:
        """The plan of select, attend, loss, dense or fidelity, and the batch of causal documents of these lengths."""
        operations = {
            "select": ("select", "select_coarse_to_fine"), "attend": ("attention_forward", "attention_backward"),
            "dense": ("attention_forward", "attention_backward"), "loss": ("indexer_loss",), "fidelity": ("fidelity",)}[role]
        kind = How("sparse") if how.kind == "sparse" else how
        key = (role, kind)
        if key not in self.plans:
            self.plans[key] = hyscale.Plan(
                self.problem(kind, role == "select"), self.rows, self.rows, operations=operations,
                context=self.contexts[self.devices[role]])
        if (key, documents) not in self.batches:
            ends = [sum(documents[:i]) for i in range(len(documents) + 1)]
            self.batches[key, documents] = self.plans[key].batch(ends[-1], cu_seqlens_q=ends, cu_seqlens_k=ends)
        return self.plans[key], self.batches[key, documents]

    def some_rows(self, documents: tuple[int, ...], rows: slice) -> tuple[hyscale.Plan, hyscale.Batch]:
        """The plan of loss, and the batch of these rows alone over the keys of all."""
        plan, whole = self.plan("loss", How("sparse"), documents)
        key = ("loss", rows.start, rows.step, documents)
        if key not in self.batches:
            begins = torch.cat([torch.full((length,), sum(documents[:i]), dtype=torch.int32) for i, length in enumerate(documents)])[rows]
            ends = torch.arange(1, whole.rows + 1, dtype=torch.int32)[rows]
            self.batches[key] = plan.batch(len(ends), whole.keys, row_begin=begins.numpy(), row_end=ends.numpy())
        return plan, self.batches[key]

    def kernels(self) -> dict[str, str]:
        """What ran where."""
        return {f"{how.kind} {operation}": f"{self.devices[role]} {kernel}"
                for (role, how), plan in self.plans.items() for operation, kernel in plan.kernels().items()}


@dataclasses.dataclass
class Learning:
    """What one pass measures and learns: the indexer's loss of each layer, and the share of dense attention that was chosen."""

    schedule: hyscale.Schedule | None = None
    step: int = 0
    losses: list[torch.Tensor] = dataclasses.field(default_factory=list)
    masses: list[float] = dataclasses.field(default_factory=list)
    kept: list[tuple[torch.Tensor, ...]] | None = None  # per layer what `learn` reads, when it is to be read again
    mass_stride: int = 0  # one row in so many is measured; 0 = none
    whole_stride: int = 0  # in the sparse stage, one row in so many also enters the dense loss; 0 = none


class Indexer(torch.nn.Module):
    """index_q = rope(x Wq), index_k = rope(x Wk), index_w = x Ww + b; half of the channels turn."""

    def __init__(self, width: int, heads: int, dim: int, theta: float, generator: torch.Generator) -> None:
        super().__init__()
        spread = 1 / math.sqrt(width)

        def normal(outputs: int, size: float) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(outputs, width, generator=generator) * size)

        self.heads, self.dim, self.theta = heads, dim, theta
        self.q, self.k, self.w = normal(heads * dim, spread), normal(dim, spread), normal(heads, 0.1 * spread)
        self.b = torch.nn.Parameter(torch.ones(heads))

    def forward(self, x: torch.Tensor, positions: torch.Tensor, rows: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """index_q [rows,HI,DI] and index_w [rows,HI] of these rows, index_k [T,DI] of all."""
        some = x[rows]
        q = self.turn((some @ self.q.T).view(len(some), self.heads, self.dim), positions[rows])
        k = self.turn((x @ self.k.T).view(len(x), 1, self.dim), positions)
        return q, k[:, 0], some @ self.w.T + self.b

    def turn(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        turned = self.dim // 4 * 2
        return torch.cat([rotated(x[..., :turned], positions, self.theta), x[..., turned:].float()], -1)


def rotated(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """RoPE on [T, heads, D]: channel i turns with channel i + D/2. Angles in f64: positions reach thousands."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None, None] * theta ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half].float(), x[..., half:].float()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def normed(x: torch.Tensor, gain: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * gain


class Model(torch.nn.Module):
    """The first `layers` layers, in f32, with an indexer each."""

    def __init__(self, source: smollm2.Model, layers: int, index_heads: int, index_dim: int, seed: int, half: bool = False) -> None:
        super().__init__()
        self.half = half  # products of the layers in bf16, sums in f32; the output matrix only for gradients
        self.heads, self.kv_heads, self.head_dim, self.width = source.heads, source.kv_heads, source.head_dim, source.width
        self.epsilon, self.theta, self.index_heads, self.index_dim = source.epsilon, source.theta, index_heads, index_dim

        def tensor(name: str) -> torch.nn.Parameter:
            array = smollm2.weight(source, name + ".weight")
            if name.endswith(("attn_q", "attn_k")):
                array = smollm2.half_layout(array, self.heads if name.endswith("q") else self.kv_heads)
            whole = torch.from_numpy(array.copy())
            if not torch.isfinite(whole).all():
                smollm2.fail(f"{name} of the model is not finite")
            return torch.nn.Parameter(whole, requires_grad=False)

        self.embedding, self.norm = tensor("token_embd"), tensor("output_norm")
        self.layers = torch.nn.ModuleList(
            torch.nn.ParameterDict({name: tensor(f"blk.{layer}.{name}") for name in MATRICES + ("attn_norm", "ffn_norm")})
            for layer in range(layers))
        generator = torch.Generator().manual_seed(seed)
        self.indexers = torch.nn.ModuleList(
            Indexer(self.width, index_heads, index_dim, self.theta, generator) for _ in range(layers))

    def attention_parameters(self) -> list[torch.nn.Parameter]:
        return [layer[name] for layer in self.layers for name in MATRICES[:4]]

    def forward(self, ids: torch.Tensor, documents: tuple[int, ...], library: Library, how: How, learning: Learning) -> torch.Tensor:
        """The last residual stream, normed; ids [T] hold documents of these lengths one after another."""
        device = self.embedding.device
        positions = torch.cat([torch.arange(length, device=device) for length in documents])
        x = self.embedding[ids.to(device)]
        with torch.autocast(device.type, torch.bfloat16, enabled=self.half):
            for number, layer in enumerate(self.layers):
                hidden = normed(x, layer["attn_norm"], self.epsilon)
                x = x + self.attention(number, hidden, positions, documents, library, how, learning) @ layer["attn_output"].T
                inner = normed(x, layer["ffn_norm"], self.epsilon)
                x = x + (F.silu(inner @ layer["ffn_gate"].T) * (inner @ layer["ffn_up"].T)) @ layer["ffn_down"].T
        return normed(x, self.norm, self.epsilon)

    def attention(self, number: int, hidden: torch.Tensor, positions: torch.Tensor, documents: tuple[int, ...], library: Library, how: How,
                  learning: Learning) -> torch.Tensor:
        layer, rows = self.layers[number], len(hidden)
        q, k, v = ((hidden @ layer["attn_" + name].T).view(rows, -1, self.head_dim) for name in "qkv")
        q, k = rotated(q, positions, self.theta), rotated(k, positions, self.theta)
        q, k, v = (to_library(x, library.types["dense" if how.kind == "dense" else "attend"]) for x in (q, k, v))
        if how.kind != "sparse":
            plan, batch = library.plan("dense" if how.kind == "dense" else "attend", how, documents)
            o, lse = hyscale.sparse_attention(plan, batch, q, k, v)
            if learning.schedule is not None:
                self.learn(number, hidden, positions, documents, library, q, k, lse, None, learning)
        else:
            o = self.sparse(number, hidden, positions, documents, library, how, q, k, v, learning)
        return o.to(hidden.device, torch.float32).reshape(rows, -1)

    def index(self, number: int, hidden: torch.Tensor, positions: torch.Tensor, library: Library, rows: slice) -> tuple[torch.Tensor, ...]:
        """The indexer learns from its own loss alone: what it reads is detached."""
        q, k, w = self.indexers[number](hidden.detach(), positions, rows)
        return to_library(q, library.types["index"]), to_library(k, library.types["index"]), to_library(w, "f32")

    def sparse(self, number: int, hidden: torch.Tensor, positions: torch.Tensor, documents: tuple[int, ...], library: Library, how: How,
               q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, learning: Learning) -> torch.Tensor:
        topk, method, scores = how.topk, None, False
        if learning.schedule is not None:
            decision = learning.schedule.decide(learning.step, number, data=learning.step, keys=max(documents))
            topk, method, scores = decision.topk[0], decision.method, decision.row_stride == 1  # else too few are read to be worth it
        index = self.index(number, hidden, positions, library, slice(None))
        plan, batch = library.plan("select", how, documents)
        with torch.no_grad():
            chosen = hyscale.select(plan, batch, *index, topk=topk, method=method, scores=scores)
        plan, batch = library.plan("attend", how, documents)
        o, lse = hyscale.sparse_attention(plan, batch, q, k, v, chosen.indices)
        if learning.schedule is not None:
            self.learn(number, hidden, positions, documents, library, q, k, lse, chosen, learning, index)
        if learning.mass_stride:
            plan, batch = library.plan("fidelity", how, documents)
            seen = plan.fidelity(batch, q, k, chosen.indices, row_stride=learning.mass_stride, row_offset=learning.mass_stride - 1)
            choosy = positions[list(seen.rows)].cpu() >= topk  # a row that sees no more keeps everything
            learning.masses.append(float(seen.mass[choosy].double().mean()) if choosy.any() else 1.0)
        return o

    def learn(self, number: int, hidden: torch.Tensor, positions: torch.Tensor, documents: tuple[int, ...], library: Library, q: torch.Tensor,
              k: torch.Tensor, lse: torch.Tensor, chosen: hyscale.Selection | None, learning: Learning, index: Any = None) -> None:
        """Adds the layer's loss. Dense without a selection, then only the rows that enter it are projected; beside a selection, which can
        only teach the order of what was chosen, `whole_stride` lets some rows learn from all keys as well."""
        assert learning.schedule is not None
        if chosen is None:  # rounded, so that the first pass and those over what it kept are the same
            hidden = hidden.to(torch.bfloat16)
        if learning.kept is not None:
            learning.kept.append((hidden, q, k, lse))
        decision = learning.schedule.decide(learning.step, number, data=learning.step, keys=max(documents))
        rows = slice(decision.row_offset, None, decision.row_stride)
        with torch.enable_grad():
            q, k = (to_library(x.detach(), library.types["attend"]) for x in (q, k))
            if index is None:
                index = self.index(number, hidden.float(), positions, library, rows)
                loss = self.loss(rows, index, documents, library, q, k, lse=lse[rows])
            else:
                some = index[0][rows], index[1], index[2][rows]
                scores = None if chosen.scores is None else chosen.scores[rows]
                loss = self.loss(rows, some, documents, library, q, k, indices=chosen.indices[rows], lse=lse[rows], scores=scores)
                if learning.whole_stride:
                    rows = slice(learning.step % learning.whole_stride, None, learning.whole_stride)
                    loss = loss + self.loss(rows, (index[0][rows], index[1], index[2][rows]), documents, library, q, k)
            learning.losses.append(loss)

    def loss(self, rows: slice, index: tuple[torch.Tensor, ...], documents: tuple[int, ...], library: Library, q: torch.Tensor, k: torch.Tensor,
             **others: Any) -> torch.Tensor:
        plan, batch = library.some_rows(documents, rows)
        return hyscale.indexer_loss(plan, batch, *index, q[rows], k, divisor=batch.rows * self.kv_heads, **others)

    def learn_again(self, kept: list[tuple[torch.Tensor, ...]], documents: tuple[int, ...], library: Library, learning: Learning) -> None:
        """The dense loss of all layers from what a pass over the same text kept; the model stands still."""
        positions = torch.cat([torch.arange(length, device=self.embedding.device) for length in documents])
        with torch.autocast(self.embedding.device.type, torch.bfloat16, enabled=self.half):
            for number, (hidden, q, k, lse) in enumerate(kept):
                self.learn(number, hidden, positions, documents, library, q, k, lse, None, learning)

    def word_losses(self, x: torch.Tensor, ids: torch.Tensor, documents: tuple[int, ...]) -> torch.Tensor:
        """-log p of each token of a document given those before it; [T - documents], f32."""
        rows = rows_with_next(documents)
        targets = ids[rows + 1].to(x.device)
        parts = []
        for first in range(0, len(rows), HEAD_ROWS):
            step = slice(first, first + HEAD_ROWS)
            part = x[rows[step].to(x.device)]
            if torch.is_grad_enabled():  # the logits are made again for the backward pass
                parts.append(checkpoint(self._head, part, targets[step], use_reentrant=False))
            else:
                parts.append(self._head(part, targets[step]))
        return torch.cat(parts)

    def _head(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half and torch.is_grad_enabled()):
            logits = x @ self.embedding.T
        return F.cross_entropy(logits.float(), targets, reduction="none")


def rows_with_next(documents: tuple[int, ...]) -> torch.Tensor:
    """All rows but each document's last."""
    ends = torch.tensor(documents).cumsum(0) - 1
    rows = torch.ones(sum(documents), dtype=torch.bool)
    rows[ends] = False
    return rows.nonzero()[:, 0]


def to_library(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """On the CPU in one of the library's types; differentiable."""
    return x.to(TYPES[dtype]).cpu()
