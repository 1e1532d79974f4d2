#!/usr/bin/env python3
"""The results of smollm2_sparse.py as a table and a picture: sparse_report.py FOLDER writes results.md and results.png there anew."""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COLUMNS = (
    ("window", "window", "original"), ("anchored", "anchored", "original"), ("sparse, untrained", "sparse", "untrained"),
    ("sparse, warmed up", "sparse", "warmed"), ("sparse, trained", "sparse", "trained"))


def find(results: list[dict[str, Any]], context: int, kind: str, stage: str, topk: int = 0) -> dict[str, Any] | None:
    wanted = (context, kind, stage, topk)
    return next((r for r in results if (r["context"], r["kind"], r["stage"], r["topk"]) == wanted), None)


def cell(result: dict[str, Any] | None) -> str:
    return "-" if result is None else f"{result['perplexity']:.2f}"


def table(data: dict[str, Any]) -> str:
    """Markdown: a row for each context and K."""
    results, lines = data["results"], []
    names = " | ".join(name for name, _, _ in COLUMNS)
    lines += [f"| context | K | dense | {names} | trained, of dense | of dense with the same matrices | mass | seconds, dense | sparse |"]
    lines += ["|---" * (len(COLUMNS) + 8) + "|"]
    for context in sorted({r["context"] for r in results}):
        dense, same = (find(results, context, "dense", stage) for stage in ("original", "trained"))
        for topk in sorted({r["topk"] for r in results if r["topk"] and r["context"] == context}):
            trained = find(results, context, "sparse", "trained", topk)
            cells = [cell(find(results, context, kind, stage, topk)) for _, kind, stage in COLUMNS]
            ratios = [f"{(trained['perplexity'] / other['perplexity'] - 1) * 100:+.1f}%" if trained and other else "-" for other in (dense, same)]
            mass = f"{trained['mass']:.3f}" if trained and trained["mass"] is not None else "-"
            times = [f"{r['seconds']:.2f}" if r else "-" for r in (dense, trained)]
            lines.append("| " + " | ".join([str(context), str(topk), cell(dense), *cells, *ratios, mass, *times]) + " |")
    lines += ["", notes(data), ""]
    return "\n".join(lines)


def notes(data: dict[str, Any]) -> str:
    dense = [r for r in data["results"] if r["kind"] == "dense" and r["stage"] == "trained"]
    steps = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in data["step_seconds"].items())
    tokens = max(r["context"] for r in data["results"])
    return (
        f"Perplexity on {data['about']['held_out_tokens']} tokens of {data['about']['held_out']}. Window: the last K keys; anchored: of the K, the "
        "first 4 of the document. Dense with the matrices of the sparse stage: "
        + ", ".join(f"{r['perplexity']:.2f} at {r['context']}" for r in sorted(dense, key=lambda r: r["context"]))
        + f". Mass: share of dense attention that the trained choice holds, on rows that see more than K. Seconds: {tokens} tokens forward. "
        f"A training step of {data['context']} tokens, {data['sparse_context']} in the sparse stage: {steps}. {data['machine']}; seed {data['seed']}.")


SCRIPT = """
set terminal pngcairo size 1500,520 font 'Sans,11'
set output '{png}'
set multiplot layout 1,3
set grid
set key below
set title 'Loss of the indexers (nats)'
set xlabel 'step'
set logscale y
plot '{folder}/whole' with lines lw 2 title 'over all keys', '{folder}/both' with lines lw 2 title 'sparse stage: over the chosen, and over all'
unset logscale y
set title 'Share of dense attention that {topk} keys hold, held out'
set yrange [0:1]
plot '{folder}/mass' with linespoints lw 2 title 'chosen by the indexers'
set title 'Perplexity at {context} tokens of context, held out'
set xlabel 'keys of a row'
set logscale x 2
set yrange [{low}:{high}]
plot {dense} with lines lw 2 dt 2 lc rgb 'black' title 'dense, as published', {same}{curves}
"""


def plot(source: Path, png: Path) -> bool:
    """Draws loss, mass and perplexity; False without gnuplot. Curves that lie above twice the dense perplexity are left to the table."""
    if shutil.which("gnuplot") is None:
        return False
    data = json.loads(source.read_text())
    results, context = data["results"], max(r["context"] for r in data["results"])
    dense = find(results, context, "dense", "original")["perplexity"]
    same = find(results, context, "dense", "trained")
    low, high = min([dense] + [r["perplexity"] for r in results if r["context"] == context]), 2 * dense
    with tempfile.TemporaryDirectory() as folder:
        def points(name: str, pairs: list[tuple[Any, Any]]) -> str:
            (Path(folder) / name).write_text("".join(f"{x} {y}\n" for x, y in pairs) or "0 NaN\n")
            return f"'{folder}/{name}'"

        points("whole", [(e["step"] + 1, e["index_loss"]) for e in data["log"] if e["phase"] == "dense"])
        points("both", [(e["step"] + 1, e["index_loss"]) for e in data["log"] if e["phase"] in ("coarse_to_fine", "exact")])
        points("mass", [(e["step"] + 1, e["mass"]) for e in data["log"] if e["mass"] is not None])
        curves = []
        for number, (name, kind, stage) in enumerate(COLUMNS):
            pairs = sorted((r["topk"], r["perplexity"]) for r in results if (r["context"], r["kind"], r["stage"]) == (context, kind, stage))
            if any(perplexity <= high for _, perplexity in pairs):
                curves.append(f"{points(f'curve{number}', pairs)} using 1:2 with linespoints lw 2 title '{name}'")
        script = SCRIPT.format(
            png=png, folder=folder, context=context, topk=data["topk"], dense=dense, low=0.97 * low, high=high, curves=", ".join(curves) or "NaN notitle",
            same="" if same is None else f"{same['perplexity']} with lines lw 2 dt 3 lc rgb 'gray40' title 'dense, matrices as trained', ")
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
    return True


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    try:
        text = table(json.loads((folder / "results.json").read_text()))
        (folder / "results.md").write_text(text)
    except (OSError, ValueError) as error:
        sys.exit(f"sparse_report: {folder}: {error}")
    print(text)
    plot(folder / "results.json", folder / "results.png")


if __name__ == "__main__":
    main()
