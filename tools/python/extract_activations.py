#!/usr/bin/env python3
"""Write the q, k and v of chosen layers of SmolLM2-135M-Instruct to a safetensors file.

The tensors are what enters attention (q and k after RoPE) while the model reads
public-domain prose, so benchmarks and tests see the score distributions of a
trained model instead of random numbers.

Requirements (none of them is needed by the library itself):
    NumPy, and what smollm2.py beside this file says about the weights and the text.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import struct
import time
from pathlib import Path
from typing import Any, Iterator

# BLAS reads these once, when numpy is loaded.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "2")

import smollm2
from smollm2 import MODEL_NAME, MODEL_PACKAGE, TEXT_PACKAGE, TRAINED_CONTEXT, Model, Text, encode, fail, half_layout, say, weight

if smollm2.MISSING is None:
    import numpy as np

FORMAT = "hyscale-activations-1"
TEXT_TITLE = "Persuasion"
MAX_TOKENS = 131072
MAX_PERPLEXITY = 60.0
ROWS_PER_STEP = 256  # bounds the score and logit buffers: 256 rows x 49,152 words is 48 MiB


# ---------------------------------------------------------------------------- forward pass

def normed(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    return x * (1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)) * gain


def rotated(x: np.ndarray, positions: np.ndarray, theta: float) -> np.ndarray:
    """RoPE on [T, heads, D]: channel i turns with channel i + D/2. Angles in f64: positions reach thousands."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * theta ** (-np.arange(half, dtype=np.float64) / half)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def causal_steps(q: np.ndarray, k: np.ndarray) -> Iterator[tuple[slice, int, np.ndarray]]:
    """Yield (rows, kv head, probabilities [heads of that kv head, rows, keys seen]) of causal attention."""
    group = q.shape[1] // k.shape[1]
    scale = 1.0 / math.sqrt(q.shape[2])
    for first in range(0, len(q), ROWS_PER_STEP):
        rows = slice(first, min(first + ROWS_PER_STEP, len(q)))
        future = np.arange(rows.stop)[None, :] > np.arange(rows.start, rows.stop)[:, None]
        for head in range(k.shape[1]):
            queries = q[rows, head * group:(head + 1) * group].swapaxes(0, 1)
            scores = queries @ k[:rows.stop, head].T * np.float32(scale)
            scores[:, future] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            yield rows, head, weights / weights.sum(axis=-1, keepdims=True)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    out = np.empty(q.shape[:2] + v.shape[2:], np.float32)
    group = q.shape[1] // k.shape[1]
    for rows, head, shares in causal_steps(q, k):
        out[rows, head * group:(head + 1) * group] = (shares @ v[:rows.stop, head]).swapaxes(0, 1)
    return out


def project_qkv(model: Model, layer: int, x: np.ndarray, context: int) -> dict[str, np.ndarray]:
    """q, k (rotated) and v from the normed input x; positions restart with every document."""
    positions = np.arange(len(x)) % context
    result = {}
    for name, heads in (("q", model.heads), ("k", model.kv_heads), ("v", model.kv_heads)):
        matrix = weight(model, f"blk.{layer}.attn_{name}.weight")
        if name != "v":
            matrix = half_layout(matrix, heads)
        y = (x @ matrix.T).reshape(len(x), heads, model.head_dim)
        result[name] = y if name == "v" else rotated(y, positions, model.theta)
    return result


def mlp(model: Model, layer: int, x: np.ndarray) -> np.ndarray:
    gate = x @ weight(model, f"blk.{layer}.ffn_gate.weight").T
    gate *= 1.0 / (1.0 + np.exp(-gate))
    gate *= x @ weight(model, f"blk.{layer}.ffn_up.weight").T
    return gate @ weight(model, f"blk.{layer}.ffn_down.weight").T


def forward(model: Model, ids: np.ndarray, context: int, wanted: list[int],
            hidden: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Run all layers; return the last residual stream and the captured tensors in f32."""
    captured: dict[str, np.ndarray] = {}
    x = weight(model, "token_embd.weight")[ids]
    for layer in range(model.layers):
        start = time.monotonic()
        inputs = normed(x, weight(model, f"blk.{layer}.attn_norm.weight"), model.epsilon)
        qkv = project_qkv(model, layer, inputs, context)
        documents = [slice(first, first + context) for first in range(0, len(ids), context)]
        mixed = np.concatenate([attention(*(qkv[name][rows] for name in "qkv")) for rows in documents])
        x = x + mixed.reshape(len(x), -1) @ weight(model, f"blk.{layer}.attn_output.weight").T
        x = x + mlp(model, layer, normed(x, weight(model, f"blk.{layer}.ffn_norm.weight"), model.epsilon))
        if layer in wanted:
            captured |= {f"layer{layer:02d}.{name}": qkv[name] for name in "qkv"}
            if hidden:
                captured[f"layer{layer:02d}.hidden"] = inputs
        say(f"layer {layer + 1:2d} of {model.layers}  {time.monotonic() - start:.1f} s")
    return x, captured


def perplexity(model: Model, x: np.ndarray, ids: np.ndarray, context: int) -> float:
    """exp of the mean loss of predicting each token of a document from those before it."""
    x = normed(x, weight(model, "output_norm.weight"), model.epsilon)
    embedding = weight(model, "token_embd.weight")  # tied: also the output matrix
    rows = np.flatnonzero(np.arange(len(ids) - 1) % context != context - 1)
    loss = 0.0
    for first in range(0, len(rows), ROWS_PER_STEP):
        step = rows[first:first + ROWS_PER_STEP]
        logits = x[step] @ embedding.T
        top = logits.max(axis=-1)
        log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1, dtype=np.float64))
        loss += float(np.sum(log_sum - logits[np.arange(len(step)), ids[step + 1]]))
    return math.exp(loss / len(rows))


# ---------------------------------------------------------------------------- output

def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round to nearest, ties to even; the result holds the upper 16 bits. Inputs are finite (checked by the caller)."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


def check_layer(layer: int, tensors: dict[str, np.ndarray], context: int) -> None:
    """Describe the attention of the rounded tensors; stop if it is uniform or has collapsed."""
    q, k = (from_bf16(tensors[f"layer{layer:02d}.{name}"])[:context] for name in "qk")
    entropy, uniform, first, local = [], [], [], []
    for rows, _, shares in causal_steps(q, k):
        seen = np.arange(rows.start, rows.stop) + 1
        entropy.append(-(shares * np.log(np.maximum(shares, 1e-30))).sum(axis=-1).mean())
        uniform.append(np.log(seen).mean())
        first.append(shares[..., 0].mean())
        distance = np.arange(rows.start, rows.stop)[:, None] - np.arange(rows.stop)[None, :]
        local.append((shares * ((distance >= 0) & (distance < 64))).sum(axis=-1).mean())
    mean = float(np.mean(entropy))
    say(f"layer {layer}: mean entropy {mean:.2f} nats (uniform attention: {np.mean(uniform):.2f}), "
        f"share of the first token {np.mean(first):.2f}, of the last 64 tokens {np.mean(local):.2f}")
    if not 0.05 < mean < 0.95 * float(np.mean(uniform)):
        fail(f"layer {layer}: this is not the attention of a trained model")


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> int:
    """Write uint16 arrays as BF16 and int32 arrays as I32; the data starts at a multiple of 64 bytes."""
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, array in tensors.items():
        kind = "BF16" if array.dtype == np.uint16 else "I32"
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in tensors.values():
                file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        partial.replace(path)
    except OSError as error:
        fail(f"cannot write {path}: {error}")
    return 8 + len(text) + offset


def describe(model: Model, text: Text, args: argparse.Namespace, score: float) -> dict[str, str]:
    return {
        "format": FORMAT, "model": MODEL_NAME if args.model is None else args.model.name,
        "model_source": model.source,
        "model_licence": str(model.reader.get_field("general.license").contents()),
        "text": text.name, "text_source": text.source, "text_licence": text.licence,
        "tokens": str(args.tokens), "context": str(args.context), "layers": " ".join(map(str, args.layers)),
        "heads": str(model.heads), "kv_heads": str(model.kv_heads), "head_dim": str(model.head_dim),
        "scale": repr(1.0 / math.sqrt(model.head_dim)), "rope_theta": f"{model.theta:g}",
        "rope_layout": "half (channel i with i + head_dim/2)", "perplexity": f"{score:.2f}"}


# ---------------------------------------------------------------------------- command line

def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Write q, k, v (after RoPE) of layers of SmolLM2-135M-Instruct on real text to a safetensors file.",
        epilog="example: extract_activations.py --layers 2 25 --tokens 2048 --out smollm2_layers.safetensors\n"
               "         extract_activations.py --layers 0 10 20 --tokens 16384 --context 8192 --hidden --out big.st",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", required=True, metavar="N",
                        help="layers to write, from 0 to 29")
    parser.add_argument("--tokens", type=int, default=2048, help=f"tokens of text, 2 to {MAX_TOKENS} (default 2048)")
    parser.add_argument("--context", type=int, help="tokens per document; positions restart at each, and no document "
                        f"sees another (default: tokens, at most {TRAINED_CONTEXT})")
    parser.add_argument("--hidden", action="store_true",
                        help="also write layerNN.hidden: the normed input that q, k and v are projected from")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")
    parser.add_argument("--model", type=Path, metavar="FILE", help=f"GGUF file (default: from {MODEL_PACKAGE})")
    parser.add_argument("--text-deb", type=Path, metavar="FILE", help=f"{TEXT_PACKAGE} package that is already here")
    parser.add_argument("--text", type=Path, metavar="FILE", help="read this UTF-8 text instead")
    parser.add_argument("--text-licence", metavar="WORDS", help="licence of --text, written to the metadata")
    args = parser.parse_args()
    if not 2 <= args.tokens <= MAX_TOKENS:
        parser.error(f"--tokens {args.tokens}: expected 2 to {MAX_TOKENS}")
    if args.context is None:
        args.context = min(args.tokens, TRAINED_CONTEXT)
    if not 2 <= args.context <= min(args.tokens, TRAINED_CONTEXT):
        parser.error(f"--context {args.context}: expected 2 to {min(args.tokens, TRAINED_CONTEXT)}")
    if (args.text is None) != (args.text_licence is None):
        parser.error("--text and --text-licence go together")
    args.layers = sorted(set(args.layers))
    return args


def load_text(args: argparse.Namespace) -> Text:
    if args.text is None:
        return smollm2.novels([TEXT_TITLE], args.text_deb)[0]
    return smollm2.text_file(args.text, args.text_licence)


def main() -> None:
    args = parse_arguments()
    smollm2.need_packages()
    if not args.out.absolute().parent.is_dir():
        fail(f"--out {args.out}: no such folder")
    model = smollm2.open_model(*smollm2.find_weights(args.model))
    if args.layers[0] < 0 or args.layers[-1] >= model.layers:
        fail(f"--layers: expected numbers from 0 to {model.layers - 1}")
    text = load_text(args)
    ids = encode(model, text.body)
    if len(ids) < args.tokens:
        fail(f"the text has {len(ids)} tokens, {args.tokens} were asked for")
    ids = ids[:args.tokens]
    last, captured = forward(model, ids, args.context, args.layers, args.hidden)
    score = perplexity(model, last, ids, args.context)
    say(f"perplexity {score:.2f} over {args.tokens} tokens of {text.name}")
    if not score < MAX_PERPLEXITY:  # also true for NaN
        fail(f"perplexity {score:.2f} is not below {MAX_PERPLEXITY:g}: the forward pass does not fit these weights")
    if not all(np.isfinite(array).all() for array in captured.values()):
        fail("an activation is not finite")
    tensors = {name: to_bf16(array) for name, array in captured.items()}
    for layer in args.layers:
        check_layer(layer, tensors, args.context)
    if args.context < args.tokens:
        ends = list(range(0, args.tokens, args.context)) + [args.tokens]
        tensors["cu_seqlens"] = np.array(ends, np.int32)
    size = write_safetensors(args.out, tensors, describe(model, text, args, score))
    say(f"wrote {args.out}: {size} bytes, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
