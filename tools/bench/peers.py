#!/usr/bin/env python3
"""Runs what users would take instead beside hyscale, in one run on one GPU.

Peers come from the machine's own Python (torch with CUDA): scaled_dot_product_attention by cuDNN
and by FlashAttention, FlexAttention with a BlockMask, torch.topk, einsum and topk. hyscale's
figures come from `hyscale bench --json`. Caches are flushed before every run; times are medians,
by events for the peers and by the clock around the whole operation for hyscale. A peer that cannot
run is shown as skipped with the reason, never as a figure.

    peers.py --hyscale build/default/hyscale [--json] [--only dense,block,select] [--repeat 20] [--small]

Equal to each other are the useful FLOPs, given per job below; what is not equal is said in "note".
"""
import argparse
import json
import statistics
import subprocess
import sys

FLUSH_BYTES = 256 << 20


class Peers:
    """Times callables on the GPU: medians by events, caches flushed."""

    def __init__(self, repeat):
        import torch

        self.torch = torch
        self.repeat = repeat
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def normal(self, *shape, grad=False):
        return self.torch.randn(*shape, dtype=self.torch.bfloat16, device="cuda").requires_grad_(grad)

    def seconds(self, call):
        times = []
        for i in range(-3, self.repeat):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush.fill_(i & 1)
            begin.record()
            call()
            end.record()
            self.torch.cuda.synchronize()
            if i >= 0:
                times.append(begin.elapsed_time(end) * 1e-3)
        return statistics.median(times)

    def both_passes(self, forward, inputs, grad):
        """Seconds of the forward pass and of the backward pass alone."""
        output = forward()
        back = lambda: self.torch.autograd.grad(output, inputs, grad, retain_graph=True)
        with self.torch.no_grad():
            ahead = self.seconds(forward)
        return ahead, self.seconds(back)


def sdpa(peers, name, heads, dim, tokens):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}[name]
    q, k, v = (peers.normal(1, heads, tokens, dim, grad=True) for _ in range(3))
    attend = peers.torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(backend):
        return peers.both_passes(lambda: attend(q, k, v, is_causal=True), (q, k, v), peers.normal(1, heads, tokens, dim))


def flex(peers, heads, kv_heads, dim, tokens, block, chosen, rows_alike):
    """FlexAttention's masks have blocks of rows too: rows_alike rows share their choice. torch 2.11 has kernels
    for no smaller blocks than 128 x 128."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    torch = peers.torch
    row_blocks, key_blocks = tokens // rows_alike, tokens // block
    visible = ((torch.arange(row_blocks, device="cuda") + 1) * rows_alike - 1) // block + 1
    noise = torch.rand(1, kv_heads, row_blocks, key_blocks, device="cuda")
    noise.masked_fill_(torch.arange(key_blocks, device="cuda") >= visible[:, None], -1)
    best = noise.topk(chosen, dim=-1)
    counts = (best.values >= 0).sum(-1).to(torch.int32)
    order = best.indices.masked_fill(best.values < 0, key_blocks).sort(-1).values
    indices = torch.nn.functional.pad(order.clamp(max=key_blocks - 1), (0, key_blocks - chosen)).to(torch.int32)
    group = heads // kv_heads
    mask = BlockMask.from_kv_blocks(
        counts.repeat_interleave(group, 1),
        indices.repeat_interleave(group, 1),
        BLOCK_SIZE=(rows_alike, block),
        mask_mod=lambda b, h, row, key: row >= key,
        seq_lengths=(tokens, tokens),
    )
    q = peers.normal(1, heads, tokens, dim, grad=True)
    k, v = (peers.normal(1, kv_heads, tokens, dim, grad=True) for _ in range(2))
    attend = torch.compile(flex_attention)
    return peers.both_passes(
        lambda: attend(q, k, v, block_mask=mask, enable_gqa=True), (q, k, v), peers.normal(1, heads, tokens, dim)
    )


def topk(peers, rows, keys, chosen):
    scores = peers.torch.randn(rows, keys, device="cuda")
    return peers.seconds(lambda: scores.topk(chosen, dim=-1))


def einsum_topk(peers, rows, keys, heads, dim, chosen):
    q, k, w = peers.normal(rows, heads, dim), peers.normal(keys, dim), peers.normal(rows, heads)

    def select():
        scores = peers.torch.einsum("thd,sd->ths", q, k).relu_()
        return peers.torch.einsum("ths,th->ts", scores, w).topk(chosen, dim=-1)

    return peers.seconds(select)


def ours(options, operation, **shape):
    command = [options.hyscale, "bench", operation, "--json", "--repeat", str(options.repeat), "--device", options.device]
    for name, value in shape.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    if options.kernels:
        command += ["--kernels", options.kernels]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError((run.stderr.strip() or "no output").splitlines()[-1])
    line = json.loads(run.stdout.splitlines()[-1])
    return line["median_s"], line["kernel"]


class Table:
    """Rows of who did which job how fast; hyscale's row comes first in each job."""

    def __init__(self, json_lines):
        self.rows = []
        self.json_lines = json_lines
        self.own = None  # hyscale's time for the job at hand

    def add(self, job, flops, who, run, note=""):
        row = {"job": job, "who": who, "note": note, "useful_flops": flops}
        try:
            answer = run()
            row["seconds"], kernel = answer if isinstance(answer, tuple) else (answer, "")
            row["flops_per_s"] = flops / row["seconds"] if flops else None
            row["note"] = ", ".join(part for part in (kernel, note) if part)
        except Exception as error:  # a peer may lack what it needs: shown, not hidden
            row["seconds"], row["note"] = None, "skipped: " + (str(error).splitlines() or [repr(error)])[0][:120]
        if who == "hyscale":
            self.own = (job, row["seconds"])
        mine = self.own[1] if self.own and self.own[0] == job else None
        row["times_hyscale"] = row["seconds"] / mine if mine and row["seconds"] else None
        self.rows.append(row)
        if self.json_lines:
            print(json.dumps(row), flush=True)

    def text(self):
        def number(value, scale, unit):
            return "-" if value is None else f"{value * scale:.2f} {unit}"

        lines = [("job", "who", "time", "useful rate", "time / hyscale's", "note")]
        for row in self.rows:
            ratio = row["times_hyscale"]
            lines.append(
                (
                    row["job"],
                    row["who"],
                    number(row["seconds"], 1e3, "ms"),
                    number(row.get("flops_per_s"), 1e-12, "TFLOP/s"),
                    "-" if ratio is None else f"{ratio:.2f}",
                    row["note"],
                )
            )
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        right = (False, False, True, True, True)
        return "\n".join(
            "  ".join(
                [cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(line, widths, right)]
                + [line[5]]
            ).rstrip()
            for line in lines
        )


def split(run):
    """The two passes of a peer as two callables that share one run."""
    kept = []

    def part(i):
        if not kept:
            try:
                kept.append(run())
            except Exception as error:
                kept.append(error)
        if isinstance(kept[0], Exception):
            raise kept[0]
        return kept[0][i]

    return lambda: part(0), lambda: part(1)


def dense(table, peers, options):
    heads, dim, tokens = 16, 128, 8192 if options.small else 65536
    shape = dict(rows=tokens, keys=tokens, heads=heads, kv_heads=heads, head_dim=dim, value_dim=dim, dtype="bf16")
    name = f"dense causal {{}}, H {heads}, D {dim}, L {tokens}"
    flops = 2 * heads * tokens * tokens * dim
    jobs = ((name.format("forward"), "dense_forward", flops), (name.format("backward"), "dense_backward", 2.5 * flops))
    passes = {who: split(lambda who=who: sdpa(peers, who, heads, dim, tokens)) for who in ("cuDNN", "FlashAttention")}
    for i, (job, operation, work) in enumerate(jobs):
        table.add(job, work, "hyscale", lambda operation=operation: ours(options, operation, **shape))
        for who, parts in passes.items():
            table.add(job, work, "SDPA " + who, parts[i])


def block(table, peers, options):
    heads, kv_heads, dim, block_keys, chosen = 64, 4, 128, 64, 16
    tokens = 8192 if options.small else 32768
    shape = dict(rows=tokens, keys=tokens, heads=heads, kv_heads=kv_heads, groups=kv_heads, head_dim=dim, value_dim=dim)
    shape.update(granularity=block_keys, topk=chosen, dtype="bf16")
    name = f"block attention {{}}, {heads}/{kv_heads}, D {dim}, L {tokens}, {chosen} x {block_keys}"
    flops = 4 * heads * dim * chosen * block_keys * tokens
    whole = 128
    alike = split(lambda: flex(peers, heads, kv_heads, dim, tokens, whole, chosen * block_keys // whole, whole))
    for i, (what, operation, work) in enumerate((("forward", "attention_forward", flops), ("backward", "attention_backward", 2.5 * flops))):
        for share in (0, 80):
            job = name.format(what) + (f", {share}% as the row before" if share else ", random")
            table.add(job, work, "hyscale", lambda o=operation, s=share: ours(options, o, **shape, **({"share": s} if s else {})))
        table.add(job, work, "FlexAttention", alike[i], f"{whole} rows share their choice of blocks of {whole}, as many keys")


def select(table, peers, options):
    heads, dim, chosen, keys = 64, 128, 2048, 32768
    rows = 1024
    job = f"index scores and top-k, {rows} x {keys}, HI {heads}, DI {dim}, K {chosen}"
    flops = 2 * heads * dim * rows * keys
    shape = dict(rows=rows, keys=keys, index_heads=heads, index_dim=dim, topk=chosen, dtype="bf16", mask="full")
    table.add(job, flops, "hyscale", lambda: ours(options, "select", **shape))
    table.add(job, flops, "einsum + topk", lambda: einsum_topk(peers, rows, keys, heads, dim, chosen))
    table.add(job, None, "torch.topk", lambda: topk(peers, rows, keys, chosen), "of ready f32 scores: the second half alone")


JOBS = {"dense": dense, "block": block, "select": select}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hyscale", default="build/default/hyscale", help="the command")
    parser.add_argument("--device", default="opencl", help="hyscale's device (default: the first of OpenCL)")
    parser.add_argument("--kernels", help="hyscale's kernels by name, comma list")
    parser.add_argument("--only", default=",".join(JOBS), help="comma list of " + ", ".join(JOBS))
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="8192 tokens, for a quick look")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    wanted = options.only.split(",")
    unknown = [name for name in wanted if name not in JOBS]
    if unknown:
        parser.error("--only: no " + ", ".join(unknown))
    try:
        peers = Peers(options.repeat)
    except Exception as error:
        sys.exit(f"peers.py: no torch with CUDA in this Python ({sys.executable}): {error}")
    table = Table(options.json)
    for name in wanted:
        JOBS[name](table, peers, options)
        peers.torch.cuda.empty_cache()
    if not options.json:
        print(f"{peers.torch.cuda.get_device_name()}, torch {peers.torch.__version__}; medians of {options.repeat}")
        print(table.text())


if __name__ == "__main__":
    main()
