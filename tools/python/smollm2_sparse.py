#!/usr/bin/env python3
"""Make a real model sparse: SmolLM2-135M with its attention done by libhyscale over keys that learned indexers choose.

First the indexers of all layers learn from dense attention (warm-up, the model stands still); then the model attends to what they choose
while its attention matrices learn from the language-modelling loss and the indexers from theirs. Last, perplexity on held-out text: dense,
a sliding window of as many keys, and sparse with indexers untrained, warmed up and trained.

    tools/setup.sh ci                                            # weights, text, torch
    cmake --preset default && cmake --build build/default
    python3 tools/python/smollm2_sparse.py --out sparse          # goes on with --resume

The folder gets checkpoint.pt, results.json, results.md and results.png.
"""
from __future__ import annotations

import argparse
import io
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import smollm2
from smollm2 import fail, say

try:
    import torch
    MISSING: str | None = None
except ImportError as error:
    MISSING = error.name
else:
    import hyscale
    import sparse_model
    from sparse_model import How, Learning

FORMAT = "hyscale-smollm2-sparse-1"
TRAIN_TITLES = ["Sense and Sensibility", "Pride and Prejudice", "Mansfield Park", "Emma", "Northanger Abbey"]
HELD_OUT_TITLES = ["Persuasion"]
# What a run is: a checkpoint is for the same of these.
IDENTITY = (
    "seed", "steps", "warmup", "context", "layers", "topk", "topk_end", "index_heads", "index_dim", "rate", "model_rate", "loss_rows",
    "sparse_loss_rows", "whole_loss_rows", "sparse_context", "warmup_documents", "schedule", "coarse_keep", "dtype", "half", "train_tokens")
RATE_END = 0.1
KEY_PERIOD = 10
COARSE_BLOCK = 32
MASS_ROWS = 64  # one held-out row in so many is measured
# torch 1.13 takes no float for plain data.
PLAIN = MISSING is None and not torch.__version__.startswith("1.")
MASS_CONTEXT = 4096  # of so many at most while training: half the time of 8,192


# ---------------------------------------------------------------------------- text

def tokens_of(source: smollm2.Model, texts: list[smollm2.Text]) -> torch.Tensor:
    return torch.cat([torch.from_numpy(smollm2.encode(source, text.body)) for text in texts])


def load_tokens(args: argparse.Namespace, source: smollm2.Model) -> tuple[torch.Tensor, torch.Tensor, dict[str, str]]:
    """Training tokens, held-out tokens (whole multiples of the largest context), and what they are."""
    if args.text:
        texts = [[smollm2.text_file(path, args.text_licence) for path in paths] for paths in (args.text, args.held_out_text)]
    else:
        texts = [smollm2.novels(titles, args.text_deb) for titles in (TRAIN_TITLES, HELD_OUT_TITLES)]
    train, held_out = (tokens_of(source, some) for some in texts)
    if len(train) < args.context:
        fail(f"the training text has {len(train)} tokens, --context {args.context} asks for at least as many")
    if args.train_tokens:
        train = train[:max(args.context, args.train_tokens)]
    largest = max(args.contexts)
    wanted = args.held_out_tokens // largest * largest
    if len(held_out) < wanted:
        fail(f"the held-out text has {len(held_out)} tokens, --held-out-tokens {args.held_out_tokens} were asked for")
    about = {"train": ", ".join(text.name for text in texts[0]), "held_out": ", ".join(text.name for text in texts[1]),
             "source": texts[0][0].source, "licence": texts[0][0].licence, "train_tokens": str(len(train)),
             "held_out_tokens": str(wanted)}
    return train, held_out[:wanted], about


# ---------------------------------------------------------------------------- one run

class Run:
    """The model, what trains it, and how far it is."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        source = smollm2.open_model(*smollm2.find_weights(args.model))
        self.train, self.held_out, about = load_tokens(args, source)
        layers = args.layers or source.layers
        if not 1 <= layers <= source.layers:
            fail(f"--layers {layers}: expected 1 to {source.layers}")
        self.model = sparse_model.Model(source, layers, args.index_heads, args.index_dim, args.seed, args.half).to(args.device)
        self.original = [p.detach().clone() for p in self.model.attention_parameters()]
        self.untrained = clone(self.model.indexers.state_dict())
        self.warmed: dict[str, torch.Tensor] = {}
        rows = max([args.context, args.sparse_context] + args.contexts)
        self.library = sparse_model.Library(
            self.model, args.library, rows, max([args.topk, args.topk_end] + args.topks), (COARSE_BLOCK, args.coarse_keep), args.types)
        self.schedule = make_schedule(args, layers)
        for parameter in self.model.attention_parameters():
            parameter.requires_grad_(True)
        self.optimizers = [
            torch.optim.AdamW(self.model.indexers.parameters(), lr=args.rate, betas=(0.9, 0.99), weight_decay=0.01),
            torch.optim.AdamW(self.model.attention_parameters(), lr=args.model_rate, betas=(0.9, 0.95), weight_decay=0.0)]
        self.step, self.log, self.results = 0, [], []
        self.kept: dict[int, list[tuple[torch.Tensor, ...]]] = {}  # of warm-up documents, while the model stands still
        self.about = {"model": smollm2.MODEL_NAME, "model_source": source.source, **about}

    def document(self, step: int) -> tuple[int, torch.Tensor]:
        """The step's training document and its number. Warm-up goes round the first few, for what they need of the model is kept; the
        sparse stage takes others, an epoch after the other, each in an order of its own."""
        args = self.args
        length = args.context if step < args.warmup else args.sparse_context
        count = len(self.train) // length
        if step < args.warmup:
            number = torch.randperm(count, generator=torch.Generator().manual_seed(args.seed))[step % min(args.warmup_documents, count)]
        else:
            at = step - args.warmup
            number = torch.randperm(count, generator=torch.Generator().manual_seed(args.seed + 1 + at // count))[at % count]
        return int(number), self.train[int(number) * length:(int(number) + 1) * length]

    def read(self, warming: bool, learning: Learning) -> torch.Tensor | None:
        """One pass over the step's document, which fills the indexers' losses; the words' mean loss, None where a kept pass serves."""
        number, ids = self.document(self.step)
        documents = (len(ids),)
        if warming and number in self.kept:
            self.model.learn_again(self.kept[number], documents, self.library, learning)
            return None
        if warming:
            learning.kept = self.kept[number] = []
        else:
            self.kept.clear()
        with torch.set_grad_enabled(not warming):
            x = self.model(ids, documents, self.library, How("dense") if warming else How("sparse", self.args.topk), learning)
            return self.model.word_losses(x, ids, documents).mean()

    # ---- checkpoint ----

    @property
    def path(self) -> Path:
        return self.args.out / "checkpoint.pt"

    def identity(self) -> dict[str, Any]:
        return {name: getattr(self.args, name) for name in IDENTITY}

    def save(self) -> None:
        state = {
            "format": FORMAT, "identity": self.identity(), "step": self.step, "log": self.log, "results": self.results,
            "indexers": self.model.indexers.state_dict(), "warmed": self.warmed,
            "attention": [p.detach() for p in self.model.attention_parameters()],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedule": torch.frombuffer(bytearray(self.schedule.state_dict()), dtype=torch.uint8)}
        whole = io.BytesIO()  # torch 1.13 aborts when its own writing fails
        torch.save(state, whole)
        write(self.path, lambda file: file.write(whole.getbuffer()))

    def load(self) -> None:
        try:
            state = torch.load(self.path, map_location=self.args.device, weights_only=PLAIN)
        except FileNotFoundError:
            fail(f"--resume: there is no {self.path}")
        except Exception as error:  # what torch raises for a file that is cut or no checkpoint is not documented
            fail(f"{self.path} is not a whole checkpoint: {first_line(error)}")
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            found = state.get("format") if isinstance(state, dict) else type(state).__name__
            fail(f"{self.path} is of another version ({found!r}, expected {FORMAT!r}); start anew with another --out")
        for name, value in self.identity().items():
            if state["identity"].get(name) != value:
                fail(f"{self.path} was made with --{name.replace('_', '-')} {state['identity'].get(name)}, not {value}; "
                     "resume with the same options, or start anew with another --out")
        self.step, self.log, self.results, self.warmed = state["step"], state["log"], state["results"], state["warmed"]
        self.model.indexers.load_state_dict(state["indexers"])
        for parameter, saved in zip(self.model.attention_parameters(), state["attention"]):
            parameter.data.copy_(saved)
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.schedule.load_state_dict(bytes(state["schedule"].cpu().tolist()))

    def load_results(self) -> None:
        """What a killed evaluation had measured stands in results.json, the checkpoint is from before."""
        try:
            data = json.loads((self.args.out / "results.json").read_text())
        except (OSError, ValueError):
            return
        same = all(data.get(name) == value for name, value in self.identity().items())
        if same and data.get("format") == FORMAT and self.step == self.args.steps and len(data["results"]) > len(self.results):
            self.results = data["results"]

    # ---- training ----

    def rates(self) -> None:
        """Up over the first twentieth, then down along a cosine: the indexers' over the run, the model's over its sparse stage."""
        args = self.args
        for optimizer, rate, first in ((self.optimizers[0], args.rate, 0), (self.optimizers[1], args.model_rate, args.warmup)):
            steps, at = args.steps - first, self.step - first + 1
            up = max(1.0, steps / 20)
            way = min(1.0, max(0.0, (at - up) / max(1.0, steps - up)))
            factor = min(1.0, max(0.0, at / up)) * (RATE_END + (1 - RATE_END) * (1 + math.cos(math.pi * way)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = rate * factor

    def train_step(self) -> dict[str, Any]:
        model = self.model
        warming = self.step < self.args.warmup
        learning = Learning(self.schedule, self.step, whole_stride=self.args.whole_loss_rows)
        began = time.monotonic()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        words = self.read(warming, learning)
        index_loss = torch.stack(learning.losses).mean()
        loss = torch.stack(learning.losses).sum()
        if not warming:
            loss = loss.to(words.device) + words
        if not math.isfinite(loss.item()):
            fail(f"the loss is not finite at step {self.step}; {self.path} is as it was, a smaller --rate or --model-rate may help")
        loss.backward()
        for indexer in model.indexers:
            torch.nn.utils.clip_grad_norm_(indexer.parameters(), 1.0)
        torch.nn.utils.clip_grad_norm_(model.attention_parameters(), 1.0)
        self.rates()
        self.optimizers[0].step()
        if not warming:
            self.optimizers[1].step()
        decision = self.schedule.decide(self.step, 0, data=self.step, keys=self.args.context)
        return {"step": self.step, "phase": decision.phase, "topk": decision.topk[0], "word_loss": None if words is None else words.item(),
                "index_loss": index_loss.item(), "mass": None, "seconds": time.monotonic() - began}

    def measure(self) -> float:
        """Share of dense attention that is chosen on one held-out document, the mean over layers."""
        ids = self.held_out[:min(self.args.context, MASS_CONTEXT)]
        documents = (len(ids),)
        learning = Learning(mass_stride=MASS_ROWS if self.args.context >= 1024 else 4)
        with torch.no_grad():
            self.model(ids, documents, self.library, How("sparse", self.args.topk), learning)
        return statistics.mean(learning.masses)

    def go(self) -> bool:
        """Trains to the end; False when it stops before, as it was told to."""
        args, began = self.args, time.monotonic()
        if not self.log:
            self.log.append({"step": -1, "phase": "untrained", "topk": args.topk, "word_loss": None, "index_loss": None,
                             "mass": self.measure(), "seconds": 0.0})
        first = self.step
        while self.step < args.steps:
            entry = self.train_step()
            self.step += 1
            if self.step % args.eval == 0 or self.step == args.steps:
                entry["mass"] = self.measure()
            self.log.append(entry)
            left = (time.monotonic() - began) / (self.step - first) * (args.steps - self.step)
            mass = "" if entry["mass"] is None else f"  mass {entry['mass']:.4f}"
            words = "" if entry["word_loss"] is None else f"words {entry['word_loss']:.4f}  "
            say(f"step {self.step}/{args.steps}  {entry['phase']} K {entry['topk'] or 'all'}  {words}"
                f"index {entry['index_loss']:.4f}{mass}  {entry['seconds']:.1f} s, {left:.0f} s left")
            if self.step == args.warmup:
                self.warmed = clone(self.model.indexers.state_dict())
            stop = bool(args.stop_after) and self.step - first >= args.stop_after and self.step < args.steps
            if stop or self.step % args.save == 0 or self.step == args.steps:
                self.save()
            if stop:
                say(f"stopped after step {self.step} of {args.steps}; --resume goes on")
                return False
        return True

    # ---- evaluation ----

    def wear(self, stage: str) -> None:
        """Puts the weights of a stage into the model."""
        indexers = {"untrained": self.untrained, "warmed": self.warmed}.get(stage, self.trained[1])
        self.model.indexers.load_state_dict(indexers)
        for parameter, value in zip(self.model.attention_parameters(), self.trained[0] if stage == "trained" else self.original):
            parameter.data.copy_(value)

    def evaluate(self, how: How, context: int) -> dict[str, float]:
        documents = (context,) * (max(self.args.contexts) // context)
        size, total, count, times, masses = sum(documents), 0.0, 0, [], []
        for first in range(0, len(self.held_out), size):
            ids, began = self.held_out[first:first + size], time.monotonic()
            learning = Learning(mass_stride=MASS_ROWS if how.kind == "sparse" and first == 0 else 0)
            with torch.no_grad():
                losses = self.model.word_losses(self.model(ids, documents, self.library, how, learning), ids, documents)
            total, count = total + float(losses.double().sum()), count + len(losses)
            times.append(time.monotonic() - began)
            masses += learning.masses
        return {"perplexity": math.exp(total / count), "tokens": count, "seconds": min(times),
                "mass": statistics.mean(masses) if masses else None}

    def evaluate_all(self) -> None:
        self.trained = ([p.detach().clone() for p in self.model.attention_parameters()], clone(self.model.indexers.state_dict()))
        cases = list_cases(self.args, bool(self.warmed))
        done = {(r["stage"], r["kind"], r["topk"], r["context"]) for r in self.results}
        for number, (stage, how, context) in enumerate(cases):
            if (stage, how.kind, how.topk, context) in done:
                continue
            self.wear(stage)
            result = {"stage": stage, "kind": how.kind, "topk": how.topk, "context": context, **self.evaluate(how, context)}
            self.results.append(result)
            mass = "" if result["mass"] is None else f", mass {result['mass']:.4f}"
            say(f"held-out {number + 1}/{len(cases)}  context {context}, {how}, {stage}: perplexity {result['perplexity']:.3f}{mass}, "
                f"{result['seconds']:.2f} s for {max(self.args.contexts)} tokens")
            self.write_results()
        self.wear("trained")
        self.save()

    def write_results(self) -> None:
        """The measured so far, as JSON."""
        whole = {
            "format": FORMAT, "command": " ".join(sys.argv), **self.identity(), "about": self.about, "device": self.args.device,
            "machine": machine(self.args.device), "library": self.args.library, "kernels": self.library.kernels(), "torch": torch.__version__,
            "step_seconds": step_seconds(self.log), "results": self.results, "log": self.log}
        write(self.args.out / "results.json", lambda file: file.write((json.dumps(whole, indent=1) + "\n").encode()))


def list_cases(args: argparse.Namespace, warmed: bool) -> list[tuple[str, How, int]]:
    """Everything that is compared, what matters most first, so that a run that is cut short has that: --topk at the largest context, then
    trained and dense everywhere, then what they are compared with; some of it at the largest context alone."""
    cases = []
    for context in sorted(args.contexts, reverse=True):
        largest = context == max(args.contexts)
        cases += [(0 if largest else 1, stage, How("dense"), context) for stage in ("original", "trained")]
        for topk in (topk for topk in args.topks if topk < context):
            main = largest and topk == args.topk
            cases += [(0 if main else 1, "trained", How("sparse", topk), context)]
            cases += [(0 if main else 2, stage, How(kind, topk), context) for stage, kind in (("original", "window"), ("untrained", "sparse"))]
            cases += [(3, "original", How("anchored", topk), context)] if largest else []
            cases += [(0 if main else 3, "warmed", How("sparse", topk), context)] if largest and warmed else []
    return [case[1:] for case in sorted(cases, key=lambda case: case[0])]


def make_schedule(args: argparse.Namespace, layers: int) -> hyscale.Schedule:
    """Dense, then (progressive) coarse to fine with exact key steps, then exact; K falls along a line over the sparse stage."""
    def topk_at(step: int) -> int:
        way = (step - args.warmup) / max(1, args.steps - args.warmup)
        return round(args.topk + (args.topk_end - args.topk) * way)

    pieces, fine = [], args.warmup
    if args.warmup:
        pieces.append(hyscale.Piece(0, "dense", loss_row_stride=args.loss_rows))
    if args.schedule == "progressive" and args.steps - args.warmup > 1:
        fine = args.warmup + (args.steps - args.warmup) * 2 // 3
        pieces.append(hyscale.Piece(args.warmup, "coarse_to_fine", topk=args.topk, topk_end=topk_at(fine), loss_row_stride=args.sparse_loss_rows))
    if args.steps > fine:
        pieces.append(hyscale.Piece(fine, "exact", topk=topk_at(fine), topk_end=args.topk_end, loss_row_stride=args.sparse_loss_rows))
    return hyscale.Schedule(
        steps=args.steps, layers=layers, groups=3, topk_max=max(args.topk, args.topk_end), coarse_block=COARSE_BLOCK, pieces=pieces,
        key_period=KEY_PERIOD if args.schedule == "progressive" else 0)


# ---------------------------------------------------------------------------- small helpers

def clone(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def write(path: Path, how: Any) -> None:
    """Whole or not at all: what stood there before stays until the new is on the disk."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            how(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        fail(f"cannot write {path}: {first_line(error)}; what was there is as it was")


def machine(device: str) -> str:
    name = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    name += f", {os.cpu_count()} units"
    return name + (f"; {torch.cuda.get_device_name()}" if device.startswith("cuda") else "")


def step_seconds(log: list[dict[str, Any]]) -> dict[str, float]:
    """Median seconds of a step, for each phase."""
    phases: dict[str, list[float]] = {}
    for entry in log:
        if entry["step"] >= 0:
            phases.setdefault(entry["phase"], []).append(entry["seconds"])
    return {phase: statistics.median(seconds) for phase, seconds in phases.items()}


# ---------------------------------------------------------------------------- command line

def by_role(option: str, text: str, roles: tuple[str, ...]) -> dict[str, str]:
    """"A", or "A,role=B,role=C"; without a bare A, B is for what is not named."""
    parts = [part.partition("=") for part in text.split(",")]
    named = {role: value for role, mark, value in parts if mark}
    others = [value for value, mark, _ in parts if not mark] or [parts[0][2]]
    if set(named) - set(roles) or len(others) > 1:
        fail(f"--{option} {text}: expected one for all, or ROLE=... with roles {', '.join(roles)}")
    return {role: named.get(role, others[0]) for role in roles}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FOLDER", help="where results and the checkpoint go")
    add("--resume", action="store_true", help="go on from the folder's checkpoint")
    add("--steps", type=int, default=280, help="steps, one document each (default 280)")
    add("--warmup", type=int, help="of which with the dense loss, the model standing still (default six of seven)")
    add("--context", type=int, default=8192, help="tokens of a training document (default 8192)")
    add("--sparse-context", type=int, help="the same in the sparse stage (default: --context)")
    add("--warmup-documents", type=int, default=8,
        help="documents that warm-up goes round; what it needs of them, 1 GB each, stays in memory (default 8)")
    add("--topk", type=int, default=512, help="keys of a row when the sparse stage begins (default 512)")
    add("--topk-end", type=int, default=256, help="and when it ends (default 256)")
    add("--schedule", choices=("progressive", "exact"), default="progressive",
        help="coarse to fine with exact key steps, the last third exact; or exact throughout (default progressive)")
    add("--coarse-keep", type=int, default=64, help=f"blocks of {COARSE_BLOCK} that coarse to fine keeps (default 64)")
    add("--loss-rows", type=int, default=64, help="one row in so many enters the dense loss (default 64)")
    add("--sparse-loss-rows", type=int, default=16, help="in the sparse stage, one row in so many enters the loss over chosen keys (default 16)")
    add("--whole-loss-rows", type=int, default=64, help="and one in so many the loss over all keys, too; 0 = none (default 64)")
    add("--index-heads", type=int, default=6, help="index heads, a multiple of the 3 key heads (default 6)")
    add("--index-dim", type=int, default=64, help="their dimension, a multiple of 4 (default 64)")
    add("--rate", type=float, default=5e-3, help="highest learning rate of the indexers (default 0.005)")
    add("--model-rate", type=float, default=1e-4, help="of the model's attention matrices (default 1e-4)")
    add("--seed", type=int, default=1, help="of the indexers' first weights and the order of the documents (default 1)")
    add("--layers", type=int, help="only the first so many layers: for tests, the model then knows little")
    add("--train-tokens", type=int, default=0, help="of the training text (default: all)")
    add("--contexts", type=int, nargs="+", default=[2048, 4096, 8192], help="contexts of the comparison, the largest a multiple of each")
    add("--topks", type=int, nargs="+", default=[128, 256, 512, 1024], help="keys of a row in the comparison")
    add("--held-out-tokens", type=int, default=16384, help="tokens of held-out text (default 16384)")
    add("--eval", type=int, default=20, help="steps between looks at a held-out document (default 20)")
    add("--save", type=int, default=60, help="steps between checkpoints, 0.5 GB each time (default 60)")
    add("--stop-after", type=int, default=0, metavar="N", help="stop after N steps of this call, to --resume later")
    add("--device", default="cpu", help="torch's device for all but attention (default cpu)")
    add("--library", default="openmp", metavar="DEVICES",
        help="the library's device, or select=...,attend=...,dense=...,loss=...,fidelity=... (default openmp)")
    add("--dtype", default="f32", metavar="TYPES",
        help="f32 or bf16: what the library gets; or index=...,attend=...,dense=... (default f32)")
    add("--half", action="store_true", help="the layers' products in bf16, sums in f32; the output matrix in bf16 only for gradients")
    add("--model", type=Path, metavar="FILE", help=f"GGUF file (default: from {smollm2.MODEL_PACKAGE})")
    add("--text-deb", type=Path, metavar="FILE", help=f"{smollm2.TEXT_PACKAGE} package that is already here")
    add("--text", type=Path, nargs="+", metavar="FILE", help="train on these UTF-8 texts instead")
    add("--held-out-text", type=Path, nargs="+", metavar="FILE", help="and hold these out; needed with --text")
    add("--text-licence", metavar="WORDS", help="licence of --text, written to the results")
    args = parser.parse_args()
    check_arguments(parser, args)
    return args


def check_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.warmup is None:
        args.warmup = args.steps * 6 // 7
    args.sparse_context = args.sparse_context or args.context
    whole = ("warmup_documents", "steps", "context", "topk", "topk_end", "coarse_keep", "loss_rows", "sparse_loss_rows", "index_heads",
             "index_dim", "eval", "save", "held_out_tokens")
    for name in whole:
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: expected at least 1")
    if args.whole_loss_rows < 0:
        parser.error(f"--whole-loss-rows {args.whole_loss_rows}: expected at least 0")
    if not 0 <= args.warmup <= args.steps:
        parser.error(f"--warmup {args.warmup}: expected 0 to the {args.steps} steps")
    limit = smollm2.TRAINED_CONTEXT
    for context in [args.context, args.sparse_context] + args.contexts:
        if not 16 <= context <= limit or max(args.contexts) % context:
            parser.error(f"context {context}: expected 16 to {limit}, and that it divides the largest, {max(args.contexts)}")
    for topk in [args.topk, args.topk_end]:
        if topk >= args.sparse_context:
            parser.error(f"--topk {topk}: a document has {args.sparse_context} tokens, so that nothing would be chosen; expected less")
    if min(args.topks) <= sparse_model.FIRST:
        parser.error(f"--topks {min(args.topks)}: expected more than {sparse_model.FIRST}")
    if args.held_out_tokens < max(args.contexts):
        parser.error(f"--held-out-tokens {args.held_out_tokens}: expected at least the largest context, {max(args.contexts)}")
    if args.index_dim % 4 or args.index_heads % 3:
        parser.error(f"--index-heads {args.index_heads} --index-dim {args.index_dim}: expected multiples of 3 and 4")
    if bool(args.text) != bool(args.held_out_text) or bool(args.text) != bool(args.text_licence):
        parser.error("--text, --held-out-text and --text-licence go together")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    args.library = by_role("library", args.library, sparse_model.ROLES)
    args.types = by_role("dtype", args.dtype, ("index", "attend", "dense"))
    if set(args.types.values()) - set(sparse_model.TYPES):
        parser.error(f"--dtype {args.dtype}: expected {' or '.join(sparse_model.TYPES)}")


def main() -> None:
    if MISSING is not None and not {"-h", "--help"} & set(sys.argv):
        fail(f"the Python package {MISSING} is missing: tools/setup.sh ci, or pip install torch numpy")
    args = parse_arguments()
    smollm2.need_packages()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out {args.out}: {error.strerror}")
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        run = Run(args)
        if args.resume:
            run.load()
            run.load_results()
        elif run.path.exists():
            fail(f"{run.path} is there already; --resume goes on from it, another --out starts anew")
        run.save()  # a folder that cannot be written to shows now, not after hours
        if run.go():
            run.evaluate_all()
            report(run)
    except hyscale.HyscaleError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; --resume goes on from the last checkpoint")


def report(run: Run) -> None:
    import sparse_report

    table = sparse_report.table(json.loads((run.args.out / "results.json").read_text()))
    print(table)
    write(run.args.out / "results.md", lambda file: file.write(table.encode()))
    if not sparse_report.plot(run.args.out / "results.json", run.args.out / "results.png"):
        say("no picture: gnuplot is not installed (Debian: gnuplot-nox)")


if __name__ == "__main__":
    main()
