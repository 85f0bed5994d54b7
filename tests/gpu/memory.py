"""Does the memory plan hold? `python tests/gpu/memory.py`, on a GPU, nothing taken from the store.

Twelve shapes, forward and forward+backward, through standard attention, flash-attn 2 and 4, and SDPA. Prints predicted and
measured peak above the inputs and how far apart they are; ends with 1 when standard is off by more than 5 %, another path by
more than 10 %, or nothing was measured. What is not installed or not supported is told and counts for nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attnlab import cost
from attnlab.lab import Lab
from attnlab.measurement import Measurement
from attnlab.problem import FORWARD, FORWARD_BACKWARD, AttentionProblem
from attnlab.store import Store
from attnlab.sweep import Sweep
from attnlab.units import percent, sequence, shape, size

PATHS = ("standard", "flash-attn-2", "flash-attn-4", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient")
WITHIN, WITHIN_FLASH = 0.05, 0.10
# (batch, seq, heads, kv_heads, head_dim, causal, dtype); the scores are larger than the inputs in each
SHAPES = (
    (4, 1024, 32, 32, 128, False, "bfloat16"),
    (4, 4096, 32, 32, 128, False, "bfloat16"),
    (4, 4096, 32, 32, 128, True, "bfloat16"),
    (4, 4096, 32, 8, 128, True, "bfloat16"),
    (1, 8192, 32, 8, 128, True, "bfloat16"),
    (1, 8192, 16, 16, 64, False, "float16"),
    (1, 2048, 12, 12, 64, True, "float16"),
    (8, 2048, 16, 16, 64, False, "bfloat16"),
    (2, 3000, 16, 4, 64, False, "bfloat16"),
    (16, 1024, 12, 12, 64, True, "bfloat16"),
    (2, 4096, 8, 8, 96, False, "bfloat16"),
    (1, 16_384, 8, 1, 128, True, "bfloat16"),
)


def problems() -> Iterator[AttentionProblem]:
    for batch, seq, heads, kv_heads, head_dim, causal, dtype in SHAPES:
        problem = AttentionProblem(
            batch=batch, seq_q=seq, heads=heads, kv_heads=kv_heads, head_dim=head_dim, causal=causal, dtype=dtype
        )
        for direction in (FORWARD, FORWARD_BACKWARD):
            yield replace(problem, direction=direction)


def line(m: Measurement) -> tuple[str, bool]:
    """(a row of the table, whether the plan held); True for what has no number."""
    head = f"| {shape(m.problem)} | {sequence(m.seq)} | {m.path} |"
    if not m.ok or not m.peak_bytes:
        return f"{head} | | {m.status}: {m.reason} |", True
    predicted = cost.predicted_peak_bytes(m.problem, m.path)
    apart = predicted / m.peak_bytes - 1
    good = abs(apart) <= (WITHIN if m.path == "standard" else WITHIN_FLASH)
    return (
        f"{head} {size(predicted)} | {size(m.peak_bytes)} | {percent(apart)}{'' if good else ' **too far**'} |",
        good,
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Store(folder))
        try:
            while (worker := lab.snapshot().worker).state != "ready":
                assert worker.state != "failed", worker.text
                lab.changed(lab.snapshot().version, 1.0)
            assert worker.device.kind == "cuda", "needs an NVIDIA GPU"
            print(f"{worker.device.name}, torch {worker.device.torch}\n")
            print("| shape | sequence | path | predicted | measured | apart |\n|---|---|---|---|---|---|")
            measured = failed = 0
            for problem in problems():
                sweep = Sweep(problem=problem, seqs=(problem.seq_kv,), paths=PATHS, refine=False)
                for m in lab.wait(lab.submit(sweep, fresh=True)).measurements:
                    row, good = line(m)
                    print(row, flush=True)
                    measured, failed = measured + m.ok, failed + (not good)
        finally:
            lab.close()
    print(f"\n{measured} measured, {failed} too far apart")
    return 1 if failed or not measured else 0


if __name__ == "__main__":
    sys.exit(main())
