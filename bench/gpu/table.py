"""Prints the rows of gpu-lab, gpu-model and sdpa.py as one table: table.py FILE.jsonl... Targets are
those for an H200; on other cards read the shares of PyTorch's product of bf16 matrices (matmul) and of
the copy, which were measured beside."""

import json
import pathlib
import sys

# TFLOP/s of causal prefill attention in bf16, head_dim 128.
PREFILL_TARGETS = {"cuda/sm90": "600", "cuda/sm80": "330"}
# That of most rows of a model, in bench/configs; others are named.
MAIN_SHAPE = "llama-3.1-8b"
# What makes two rows of a model comparable, but for the number of ranks.
MODEL_KEYS = ("phase", "tokens", "depth", "model", "weights_dtype", "kv_dtype", "policy", "kernels")


def read(files):
    rows = []
    for name in files:
        with open(name, encoding="utf-8") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:  # the last line of a program that was ended
                    print(f"table.py: {name} has a line that is no JSON", file=sys.stderr)
    return rows


def first(rows, field, **wanted):
    """The field of the first row that has all that is wanted; None without any."""
    return next((r[field] for r in rows if all(r.get(k) == v for k, v in wanted.items())), None)


def share_of_matmul(row, rows):
    """Of the rate of PyTorch's product; empty where it was not timed."""
    matmul = first(rows, "tflops", op="matmul")
    return f"{row['tflops'] / matmul:.2f} of matmul" if matmul and row.get("tflops") else ""


def joined(*parts):
    return ", ".join(part for part in parts if part)


def of_op(row, rows):
    """What was measured, its target, and what stands beside it."""
    op, dtype, size, kernels = row["op"], row["dtype"], row["size"], row.get("kernels")
    rate = f"{row.get('tflops') or 0:.0f} TFLOP/s"
    bandwidth = f"{row.get('gb_per_second') or 0:.0f} GB/s"
    bf16 = first(rows, "seconds", op=op, dtype="bf16", size=size, kernels=kernels)
    times = f"{bf16 / row['seconds']:.2f} times bf16" if bf16 and dtype != "bf16" else ""
    if op == "prefill" and dtype == "bf16":
        torch = [f"{r['tflops']:.0f} by {r.get('backend', 'PyTorch')}"
                 for r in rows if r.get("op") == "sdpa" and r["size"] == size]
        return rate, PREFILL_TARGETS.get(kernels, ""), joined(share_of_matmul(row, rows), *torch)
    if op == "prefill_blocks":
        density = row["density"]
        return f"{row['ratio_to_dense']:.3f} of dense", f"{density + 0.05:.3f}", f"density {density:.3f}"
    if op == "decode" and dtype == "bf16":
        copy = first(rows, "gb_per_second", op="copy")
        return f"{row['gb_per_second'] / copy:.2f} of copy" if copy else "", "0.85", bandwidth
    if op == "decode":
        return times, "1.60" if dtype == "fp8_e4m3" else "", bandwidth
    if op == "copy" or op == "linear" and size <= 16:
        share = f"{row['of_copy']:.2f} of copy" if row.get("of_copy") else ""
        return bandwidth, "", joined(share, times)
    if "ratio_to_old" in row:
        of_copy = f"{row['of_copy']:.2f} of copy" if row.get("of_copy") else rate
        rounded = f"{row['bf16_seconds'] * 1e3:.3f} ms of bf16, {row['error']:.4f} off" if "error" in row else ""
        other = f"{row['other_bits'] * 100:.3f}% other bits" if "other_bits" in row else ""
        old = f"{row['old_seconds'] * 1e3:.3f} ms of the old way"
        return f"{row['ratio_to_old']:.3f} of the old way", "1.000", joined(old, of_copy, rounded, times, other)
    if "ratio_to_single" in row:
        return f"{row['host_seconds'] * 1e3:.3f} ms of the host", "", f"{row['ratio_to_single']:.3f} of single launches"
    share = "" if op == "matmul" else share_of_matmul(row, rows)
    return rate if row.get("tflops") else "", "", joined(share, times)


def is_batched(row):
    return row.get("streams", 1) > 1


def of_model(row, rows):
    """The same of a prompt or an answer: of one rank beside a peak and beside bf16, of more beside one."""
    rate = f"{row['tokens_per_second']:.1f} tokens/s"
    if is_batched(row):
        return f"{row['peak_fraction']:.2f} of the least time", "", f"{rate}, {row['idle'] * 100:.1f}% idle"
    is_prefill = row["phase"] == "prefill"
    alike = {key: row.get(key) for key in MODEL_KEYS}
    one = first(rows, "seconds", **alike, ranks=1)
    if row["ranks"] > 1 and one:
        exposed = row.get("exposed_seconds")
        beside = rate if exposed is None else f"{rate}, {exposed:.3f} s exposed"
        return f"{row['seconds'] / one:.3f} of 1 rank", "1.060" if is_prefill else "", beside
    bf16 = first(rows, "seconds", **{**alike, "weights_dtype": "bf16"}, ranks=row["ranks"])
    times = f"{bf16 / row['seconds']:.2f} times bf16" if bf16 and row["weights_dtype"] != "bf16" else ""
    share = row.get("peak_fraction")
    figure = "" if share is None else f"{share:.2f} of {row['peak']}"
    idle = "" if row.get("idle") is None else f"{row['idle'] * 100:.1f}% idle"
    return figure, "0.60" if is_prefill and row["policy"] == "dense" else "", joined(rate, times, idle)


def name_of_model(row):
    """What stands out in it: rows of one table differ in these."""
    shown = [row["phase"], f"ranks: {row['ranks']}"]
    shown += [shape for shape in [pathlib.Path(row["model"]).stem] if shape != MAIN_SHAPE]
    shown += [f"streams: {row['streams']}"] if is_batched(row) else []
    shown += [f"{key} keys" for key in [row["kv_dtype"]] if key != "bf16"]
    shown += [policy for policy in [row["policy"]] if policy != "dense"]
    return ", ".join(shown)


def line_of(row, rows):
    if "op" in row:
        names = f"{row.get('kernels', 'PyTorch')} {row['op']}", row["dtype"], str(row["size"])
        values = of_op(row, rows)
    else:
        names = name_of_model(row), row["weights_dtype"], str(row["tokens"] + row["depth"])
        values = of_model(row, rows)
    return *names, f"{row.get('seconds', row.get('step_seconds')) * 1e3:.3f}", *values


def main():
    rows = read(sys.argv[1:])
    table = [("", "dtype", "size", "ms", "figure", "target", "beside")]
    table += [line_of(row, rows) for row in rows if row.get("op") != "sdpa"]
    widths = [max(map(len, column)) for column in zip(*table)]
    table.insert(1, ["-" * width for width in widths])
    for line in table:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")


main()
