#!/usr/bin/env python3
"""Times hyscale on the processor beside torch on the same threads.

    tools/bench/compare_torch.py build/default/hyscale [--threads N] [--dtype f32|bf16] [--repeat N] [--only OPERATION]

Needs torch (PyPI; the one for processors is enough). One line per operation: medians of both and their ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

DENSE = ["--heads", "16", "--kv-heads", "16", "--head-dim", "128", "--value-dim", "128", "--rows", "2048", "--keys", "2048"]
SELECT = ["--index-heads", "64", "--index-dim", "128", "--topk", "2048", "--rows", "128", "--keys", "32768", "--mask", "full"]


def hyscale(options, operation, shape):
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), OMP_PROC_BIND="true")
    command = [options.hyscale, "bench", operation, *shape, "--dtype", options.dtype, "--repeat", str(options.repeat),
               "--device", "openmp", "--json"]
    line = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    return line["median_s"], line["kernel"]


def median(options, function):
    times = []
    for i in range(-2, options.repeat):
        start = time.perf_counter()
        function()
        if i >= 0:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_dense(options, torch, dtype, backward):
    q, k, v = (torch.randn(1, 16, 2048, 128, dtype=dtype, requires_grad=backward) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    if not backward:
        return median(options, lambda: attend(q, k, v, is_causal=True))
    o = attend(q, k, v, is_causal=True)
    grad = torch.randn_like(o)
    return median(options, lambda: torch.autograd.grad(o, (q, k, v), grad, retain_graph=True))


def torch_select(options, torch, dtype):
    q, k = torch.randn(128, 64, 128, dtype=dtype), torch.randn(32768, 128, dtype=dtype)
    w = torch.randn(128, 64)

    def run():
        for rows in range(0, 128, 16):  # all at once would hold 128 x 64 x 32768 products
            products = torch.einsum("thd,sd->ths", q[rows:rows + 16], k).float().relu_()
            torch.einsum("ths,th->ts", products, w[rows:rows + 16]).topk(2048, dim=-1)

    return median(options, run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hyscale")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("dense_forward", "dense_backward", "select"))
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        parser.exit(77, "torch is missing: pip install torch\n")
    torch.set_num_threads(options.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    rows = [
        ("dense_forward", DENSE, "SDPA", lambda: torch_dense(options, torch, dtype, False)),
        ("dense_backward", DENSE, "SDPA", lambda: torch_dense(options, torch, dtype, True)),
        ("select", SELECT, "einsum + topk", lambda: torch_select(options, torch, dtype)),
    ]
    print(f"torch {torch.__version__}, {options.threads} threads, {options.dtype}, medians of {options.repeat}")
    print(f"{'operation':16s}{'kernel':32s}{'hyscale':>12s}{'torch':>12s}  {'torch does':14s}{'ratio':>6s}")
    for operation, shape, what, run in rows:
        if options.only not in (None, operation):
            continue
        ours, kernel = hyscale(options, operation, shape)
        theirs = run()
        print(f"{operation:16s}{kernel:32s}{ours * 1e3:9.1f} ms{theirs * 1e3:9.1f} ms  {what:14s}{theirs / ours:6.2f}", flush=True)


if __name__ == "__main__":
    main()
