"""Times PyTorch's scaled_dot_product_attention, causal, in bf16, over the shapes of gpu-lab: one JSON
object per row on standard output."""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
ENOUGH_SECONDS = 0.3


def seconds_of(run):
    """Median seconds of one run, after one that does not count."""
    run()
    torch.cuda.synchronize()
    seconds = []
    while len(seconds) < 3 or (sum(seconds) < ENOUGH_SECONDS and len(seconds) < 1000):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def draw(heads, tokens):
    return torch.randn(1, heads, tokens, HEAD_DIM, device="cuda", dtype=torch.bfloat16)


def main():
    if not torch.cuda.is_available():
        sys.exit("sdpa.py: PyTorch sees no GPU")
    group = HEADS // KV_HEADS
    for tokens in (16384, 32768, 65536, 131072):
        # Repeated heads: not every version takes grouped ones. The time of repeating is not counted.
        query = draw(HEADS, tokens)
        key = draw(KV_HEADS, tokens).repeat_interleave(group, dim=1)
        value = draw(KV_HEADS, tokens).repeat_interleave(group, dim=1)
        seconds = seconds_of(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True))
        flops = 4 * HEADS * HEAD_DIM * tokens * (tokens + 1) / 2
        print(json.dumps({"op": "sdpa", "dtype": "bf16", "size": tokens, "seconds": seconds,
                          "tflops": flops / seconds * 1e-12, "torch": torch.__version__}), flush=True)
        del query, key, value


main()
