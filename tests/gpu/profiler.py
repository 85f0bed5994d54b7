"""Is device_ms what the profiler sees? `python tests/gpu/profiler.py` on a GPU.

For each path at four lengths: device_ms as the engine takes it, and the kernels that CUPTI (PyTorch's profiler) reports
of the very same calls, so that no change of the clock lies between them; medians. `sum` is the kernels' durations alone,
`span` from the start of the first to the end of the last. A path of one kernel is held to the sum. In one of several the
device also waits between them, and the profiler makes that wait longer, so it is held to lie between sum and span. Prints
a table for the README; ends with 1 when a point is off by more than 2 % above 50 µs, or more than 2 µs below it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.kernels import Kernel, timeline
from attnlab.measure.point import Bench
from attnlab.measure.timing import CudaTimer
from attnlab.measure.trial import silent
from attnlab.problem import AttentionProblem

PATHS = ("flash-attn-2", "flash-attn-4", "sdpa-cudnn", "standard")
SEQS = (128, 256, 1024, 4096)
CALLS = 20
SHORT_US, WITHIN_US, WITHIN = 50.0, 2.0, 0.02


def both(timer: CudaTimer, call: Callable[[], object], names: bool) -> tuple[float, float, float, int]:
    """Medians over the same calls in µs: device_ms as the engine takes it, CUPTI's sum and span; how many kernels."""
    (flushing,) = timeline(timer._flush.zero_, timer.device)
    taken: list[float] = []
    groups: list[list[Kernel]] = []
    ran = timeline(lambda: taken.extend(timer._batch(call, CALLS, 20.0, "cold").times_ms), timer.device)
    for kernel in ran:
        if kernel.name == flushing.name and kernel.us > flushing.us / 2:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    assert len(groups) == CALLS and len({len(group) for group in groups}) == 1, [len(group) for group in groups]
    if names:
        print(*(kernel.name[:120] for kernel in groups[0]), sep="\n", file=sys.stderr)
    sums = [sum(kernel.us for kernel in group) for group in groups]
    spans = [group[-1].end_us - group[0].start_us for group in groups]
    return statistics.median(taken) * 1e3, statistics.median(sums), statistics.median(spans), len(groups[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", default=",".join(PATHS))
    parser.add_argument("--seqs", default=",".join(map(str, SEQS)))
    parser.add_argument("--names", action="store_true", help="also the kernels of each call, on stderr")
    options = parser.parse_args()
    bench = Bench(torch.device("cuda:0"))
    print(f"{bench.facts.name}, torch {bench.facts.torch}, batch 4, heads 32, dim 128, bfloat16, forward, cold L2\n")
    print(
        "| path | sequence | device µs | CUPTI sum µs | CUPTI span µs | kernels | off |\n|---|---|---|---|---|---|---|"
    )
    failed = 0
    for name in options.paths.split(","):
        for seq in map(int, options.seqs.split(",")):
            problem = AttentionProblem(batch=4, seq_q=seq, heads=32, head_dim=128)
            verdict = bench.trials.verdict(name, problem, silent)
            if verdict.reason:
                print(f"| {name} | {seq:,} | {verdict.reason} | | | | |")
                continue
            call = make_call(verdict.path.build(problem), problem, *make_inputs(problem, bench.device))
            call()
            both(bench.timer, call, names=False)  # a warm-up: the card finds its clock
            ours_us, sum_us, span_us, count = both(bench.timer, call, options.names)
            top_us = sum_us if count == 1 else span_us
            off_us = ours_us - min(max(ours_us, sum_us), top_us)
            good = abs(off_us) <= (WITHIN_US if sum_us < SHORT_US else WITHIN * sum_us)
            failed += not good
            off = f"{off_us:+.1f} µs" if sum_us < SHORT_US else f"{off_us / sum_us:+.1%}"
            print(
                f"| {name} | {seq:,} | {ours_us:,.1f} | {sum_us:,.1f} | {span_us:,.1f} | {count} | {off}"
                f"{'' if good else ' **too far**'} |",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
