"""tools/python/smollm2_sparse.py in small: three layers of the real model, documents of 128 tokens. It learns, goes on after a stop and a
kill as if there had been none, and says what is wrong."""
from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "python"
sys.path.insert(0, str(TOOLS))
import smollm2  # noqa: E402

import gguf  # noqa: E402  (where smollm2 looks for it)

SMALL = (
    "--layers 3 --context 128 --contexts 64 128 --topks 8 16 --topk 32 --topk-end 16 --steps 20 --warmup 14 --warmup-documents 4 --loss-rows 2 "
    "--sparse-loss-rows 2 --whole-loss-rows 8 --coarse-keep 2 --held-out-tokens 256 --eval 10 --save 4 --rate 0.01 --index-heads 6 --index-dim 32 --text-licence none").split()
work = Path()


def setUpModule() -> None:
    global work
    work = Path(tempfile.mkdtemp())
    train, held_out = smollm2.novels(["Emma", "Persuasion"])
    (work / "train.txt").write_text(train.body[:30000])
    (work / "held_out.txt").write_text(held_out.body[:10000])


def tearDownModule() -> None:
    shutil.rmtree(work)


def command(out: str, *options: str, train: str = "train.txt") -> list[str]:
    return [sys.executable, str(TOOLS / "smollm2_sparse.py"), "--out", str(work / out), *SMALL, "--text", str(work / train), "--held-out-text",
            str(work / "held_out.txt"), *options]


def run(out: str, *options: str, limit: int = 0, **others: str) -> subprocess.CompletedProcess[str]:
    """`limit`: no file may become larger, as on a disk that fills up."""
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(command(out, *options, **others), text=True, capture_output=True, preexec_fn=limited if limit else None)


def learned(out: str) -> list[Any]:
    """What a run measured, without the times."""
    data = json.loads((work / out / "results.json").read_text())
    steps = [[e["step"], e["phase"], e["topk"], e["index_loss"], e["mass"], e["word_loss"] if e["phase"] != "dense" else None] for e in data["log"]]
    return [steps, [[r["stage"], r["kind"], r["topk"], r["context"], r["perplexity"], r["mass"]] for r in data["results"]]]


@functools.lru_cache
def whole() -> subprocess.CompletedProcess[str]:
    """One run from start to end, in the folder "whole"."""
    result = run("whole")
    assert result.returncode == 0, result.stderr
    return result


class Learning(unittest.TestCase):
    def setUp(self) -> None:
        self.whole = whole()

    def test_loss_falls_and_recall_rises(self) -> None:
        data = json.loads((work / "whole" / "results.json").read_text())
        warming = [e["index_loss"] for e in data["log"] if e["phase"] == "dense"]
        self.assertEqual(len(warming), 14)
        self.assertLess(np.mean(warming[-4:]), 0.9 * np.mean(warming[:4]))
        masses = [e["mass"] for e in data["log"] if e["mass"] is not None]
        self.assertEqual(len(masses), 3)
        self.assertGreater(masses[1], masses[0] + 0.05)
        self.assertGreater(masses[2], masses[0] + 0.05)
        self.assertEqual([e["phase"] for e in data["log"]].count("exact"), 2)

    def test_everything_is_compared(self) -> None:
        data = json.loads((work / "whole" / "results.json").read_text())
        found = {(r["stage"], r["kind"], r["topk"], r["context"]): r for r in data["results"]}
        self.assertEqual(len(found), (2 + 5 * 2) + (2 + 3 * 2))
        for result in found.values():
            self.assertGreater(result["perplexity"], 1)
            self.assertGreater(result["seconds"], 0)
        for topk in (8, 16):
            for context in (64, 128):
                trained, untrained = (found[stage, "sparse", topk, context] for stage in ("trained", "untrained"))
                self.assertLess(trained["perplexity"], untrained["perplexity"])
                self.assertGreater(trained["mass"], untrained["mass"] + 0.05)
        table = (work / "whole" / "results.md").read_text()
        self.assertEqual(table, self.whole.stdout.removesuffix("\n"))
        self.assertEqual(len([line for line in table.splitlines() if line.startswith("|")]), 2 + 4)
        if shutil.which("gnuplot"):
            self.assertEqual((work / "whole" / "results.png").read_bytes()[1:4], b"PNG")


class GoingOn(unittest.TestCase):
    def setUp(self) -> None:
        whole()

    def test_a_stopped_run_goes_on(self) -> None:
        stopped = run("parts", "--stop-after", "7", "--topks", "8")  # what is compared may change
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        self.assertIn("stopped after step 7 of 20", stopped.stderr)
        resumed = run("parts", "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(learned("parts"), learned("whole"))

    def kill_at(self, words: str, *options: str) -> None:
        process = subprocess.Popen(command("killed", *options), stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if line.startswith(words):
                break
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def test_a_killed_run_goes_on(self) -> None:
        self.kill_at("step 17/")
        self.kill_at("held-out 9/", "--resume")
        resumed = run("killed", "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertNotIn("held-out 7/", resumed.stderr)  # it was measured before
        self.assertEqual(learned("killed"), learned("whole"))

    def test_a_full_disk_loses_nothing(self) -> None:
        shutil.copytree(work / "whole", work / "full")
        path = work / "full" / "checkpoint.pt"
        before = path.read_bytes()
        filled = run("full", "--resume", limit=100000)
        self.assertNotEqual(filled.returncode, 0)
        self.assertRegex(filled.stderr, r"cannot write .*checkpoint\.pt: .*; what was there is as it was")
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual([p.name for p in path.parent.glob("*.partial")], [])
        again = run("full", "--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(learned("full"), learned("whole"))

    def test_wrong_checkpoints(self) -> None:
        def resume(change: Any, *options: str) -> str:
            folder = work / "wrong"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            change(work / "whole" / "checkpoint.pt", folder / "checkpoint.pt")
            result = run("wrong", "--resume", *options)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertNotIn("Traceback", result.stderr)
            return result.stderr

        def older(source: Path, target: Path) -> None:
            torch.save({**torch.load(source), "format": "hyscale-smollm2-sparse-0"}, target)

        self.assertIn("is of another version ('hyscale-smollm2-sparse-0'", resume(older))
        self.assertIn("is not a whole checkpoint", resume(lambda source, target: target.write_bytes(source.read_bytes()[:200000])))
        self.assertIn("was made with --seed 1, not 2", resume(shutil.copy, "--seed", "2"))
        self.assertIn("is there already; --resume", run("whole").stderr)
        self.assertIn("there is no", run("nothing", "--resume").stderr)


class Refusing(unittest.TestCase):
    def refuses(self, words: str, *options: str, **others: str) -> None:
        result = run("refused", *options, **others)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(words, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse((work / "refused" / "checkpoint.pt").exists())

    def test_options(self) -> None:
        self.refuses("--topk 128: a document has 128 tokens", "--topk", "128")
        self.refuses("expected 0 to the 20 steps", "--warmup", "21")
        self.refuses("--whole-loss-rows -1: expected at least 0", "--whole-loss-rows", "-1")
        self.refuses("divides the largest", "--contexts", "100", "128")
        self.refuses("expected multiples of 3 and 4", "--index-heads", "4")
        self.refuses("--library gpu=openmp", "--library", "gpu=openmp")
        self.refuses("no backend is called", "--library", "nothing")
        if not torch.cuda.is_available():
            self.refuses("no CUDA device", "--device", "cuda")

    def test_texts(self) -> None:
        (work / "empty.txt").write_text(" \n")
        (work / "short.txt").write_text("Emma Woodhouse, handsome, clever, and rich.")
        (work / "latin.txt").write_bytes(b"caf\xe9 " * 100)
        self.refuses("empty.txt is empty", train="empty.txt")
        self.refuses("--context 128 asks for at least as many", train="short.txt")
        self.refuses("cannot read the text", train="latin.txt")
        self.refuses("cannot read the text", train="none.txt")

    def test_weights_that_are_not_numbers(self) -> None:
        path, _ = smollm2.find_weights(None)
        broken = work / "broken.gguf"
        shutil.copy(path, broken)
        reader = gguf.GGUFReader(broken, "r+")
        tensor = next(tensor for tensor in reader.tensors if tensor.name == "blk.1.attn_norm.weight")
        tensor.data[5] = np.nan
        reader.data.flush()
        self.refuses("blk.1.attn_norm of the model is not finite", "--model", str(broken))
        broken.write_bytes(b"GGUF, but cut short")
        self.refuses("as GGUF", "--model", str(broken))
        broken.unlink()

    def test_a_run_that_explodes(self) -> None:
        result = run("exploded", "--rate", "1e30", "--steps", "4", "--warmup", "3")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the loss is not finite at step", result.stderr)
        self.assertTrue((work / "exploded" / "checkpoint.pt").exists())

    def test_nowhere_to_write(self) -> None:
        (work / "file").write_text("")
        self.refuses("--out", "--out", str(work / "file"))


if __name__ == "__main__":
    unittest.main()
