"""Times PyTorch's scaled_dot_product_attention, causal, in bf16, over the shapes of gpu-lab, by each
of its backends that takes them; and a product of bf16 matrices. One JSON object per row on standard
output; what a backend does not take is said on standard error."""

import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
MATRIX = 8192
ENOUGH_SECONDS = 0.3
LONG_SECONDS = 0.01
MOST_RUNS = 16


def device_seconds(run, runs):
    """Seconds of one of `runs` in a row, between two events of the device."""
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(runs):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / runs


def seconds_of(run):
    """Median seconds of one run, after two that do not count."""
    run()
    runs = max(1, min(MOST_RUNS, int(LONG_SECONDS / device_seconds(run, 1))))
    seconds = []
    while len(seconds) < 3 or (sum(seconds) * runs < ENOUGH_SECONDS and len(seconds) < 1000):
        seconds.append(device_seconds(run, runs))
    return statistics.median(seconds)


def draw(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def report(op, size, seconds, flops, **more):
    row = {"op": op, "dtype": "bf16", "size": size, "seconds": seconds, "tflops": flops / seconds * 1e-12}
    print(json.dumps({**row, **more, "torch": torch.__version__}), flush=True)


def time_attention(tokens):
    group = HEADS // KV_HEADS
    # Repeated heads: not every backend takes grouped ones. The time of repeating is not counted.
    query = draw(1, HEADS, tokens, HEAD_DIM)
    key = draw(1, KV_HEADS, tokens, HEAD_DIM).repeat_interleave(group, dim=1)
    value = draw(1, KV_HEADS, tokens, HEAD_DIM).repeat_interleave(group, dim=1)
    flops = 4 * HEADS * HEAD_DIM * tokens * (tokens + 1) / 2
    for name in BACKENDS:
        try:
            with sdpa_kernel(SDPBackend.__members__[name]):
                seconds = seconds_of(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True))
        except (KeyError, RuntimeError) as error:
            print(f"sdpa.py: {name} does not take {tokens} tokens: {error!r}", file=sys.stderr)
            continue
        report("sdpa", tokens, seconds, flops, backend=name)


def main():
    if not torch.cuda.is_available():
        sys.exit("sdpa.py: PyTorch sees no GPU")
    left, right = draw(MATRIX, MATRIX), draw(MATRIX, MATRIX)
    report("matmul", MATRIX, seconds_of(lambda: left @ right), 2 * MATRIX**3)
    del left, right
    for tokens in (16384, 32768, 65536, 131072):
        time_attention(tokens)


main()
