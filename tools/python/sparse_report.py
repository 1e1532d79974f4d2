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
    lines += ["| context | K | dense | " + " | ".join(name for name, _, _ in COLUMNS) + " | of dense | of dense, same matrices | mass | seconds, dense | sparse |"]
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
set terminal pngcairo size 1500,480 font 'Sans,11'
set output '{png}'
set multiplot layout 1,3
set grid
set key top right
set title 'Indexers'' loss (nats)'
set xlabel 'step'
set logscale y
plot '{folder}/log' using 1:2 with lines lw 2 title 'index loss'
unset logscale y
set title 'Share of dense attention chosen, held out'
set key bottom right
plot '{folder}/log' using 1:($3 < 0 ? NaN : $3) with linespoints lw 2 title 'mass'
set title 'Perplexity at {context} tokens of context, held out'
set xlabel 'keys of a row'
set logscale x 2
set key top right
set yrange [{low}:{high}]
plot {dense} with lines lw 2 dt 2 lc rgb 'black' title 'dense', {curves}
"""


def plot(source: Path, png: Path) -> bool:
    """Draws loss, mass and perplexity; False without gnuplot."""
    if shutil.which("gnuplot") is None:
        return False
    data = json.loads(source.read_text())
    results, context = data["results"], max(r["context"] for r in data["results"])
    dense = find(results, context, "dense", "original")["perplexity"]
    with tempfile.TemporaryDirectory() as folder:
        log = [f"{e['step'] + 1} {e['index_loss'] if e['index_loss'] is not None else 'NaN'} {e['mass'] if e['mass'] is not None else -1}"
               for e in data["log"]]
        (Path(folder) / "log").write_text("\n".join(log) + "\n")
        curves = []
        for number, (name, kind, stage) in enumerate(COLUMNS):
            points = sorted((r["topk"], r["perplexity"]) for r in results if (r["context"], r["kind"], r["stage"]) == (context, kind, stage))
            if points:
                (Path(folder) / f"curve{number}").write_text("".join(f"{k} {p}\n" for k, p in points))
                curves.append(f"'{folder}/curve{number}' using 1:2 with linespoints lw 2 title '{name}'")
        script = SCRIPT.format(png=png, folder=folder, context=context, dense=dense, low=0.97 * dense, high=2 * dense,
                               curves=", ".join(curves) or "NaN notitle")
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
