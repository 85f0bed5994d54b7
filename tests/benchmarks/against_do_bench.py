"""What careful numbers cost: `python tests/benchmarks/against_do_bench.py [--repeats 3]` on a GPU.

The default sweep, standard and flash, through AttnLab with intervals within 1 %, and the same points through
triton.testing.do_bench with its default settings, on the same tensors, each warmed up by one round that does not count.
Prints the seconds that each takes, and for each point how far apart the repeats are, (highest - lowest) / lowest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from triton.testing import do_bench

from attnlab.lab import Lab
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.trial import Trials, silent
from attnlab.store import Store
from attnlab.sweep import default_sweep
from attnlab.units import ms, sequence

Times = dict[tuple[str, int], float]
SWEEP = default_sweep("cuda")


def attnlab_round(lab: Lab) -> tuple[float, Times, Times]:
    """(seconds, ms of each point, half of each interval over its median)."""
    started = time.perf_counter()
    run = lab.wait(lab.submit(SWEEP, fresh=True))
    took_s = time.perf_counter() - started
    good = [m for m in run.measurements if m.ok]
    times = {(m.path, m.seq): m.device_ms for m in good}
    widths = {(m.path, m.seq): (m.interval_ms[1] - m.interval_ms[0]) / 2 / m.device_ms for m in good}
    return took_s, times, widths


def do_bench_round(trials: Trials) -> tuple[float, Times]:
    torch.cuda.empty_cache()  # or two score matrices of 64 GiB find no room between what the round before has left
    started, times = time.perf_counter(), {}
    for seq in SWEEP.seqs:
        problem = SWEEP.at(seq)
        inputs = make_inputs(problem, trials.device)
        for path in SWEEP.paths:
            call = make_call(trials.verdict(path, problem, silent).path.build(problem), problem, *inputs)
            times[path, seq] = do_bench(call, return_mode="median")
    return time.perf_counter() - started, times


def apart(rounds: list[Times], point: tuple[str, int]) -> float:
    values = [times[point] for times in rounds]
    return max(values) / min(values) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Store(Path(folder)))
        try:
            attnlab_round(lab)
            ours = [attnlab_round(lab) for _ in range(repeats)]
        finally:
            lab.close()
    trials = Trials(torch.device("cuda:0"))
    do_bench_round(trials)
    theirs = [do_bench_round(trials) for _ in range(repeats)]
    print("| path | sequence | AttnLab ms | ± | apart | do_bench ms | apart |\n|---|---|---|---|---|---|---|")
    for point in ours[0][1]:
        print(
            f"| {point[0]} | {sequence(point[1])} | {ms(ours[-1][1][point])} | {ours[-1][2][point]:.1%}"
            f" | {apart([times for _, times, _ in ours], point):.1%} | {ms(theirs[-1][1][point])}"
            f" | {apart([times for _, times in theirs], point):.1%} |"
        )
    took_ours, took_theirs = ([f"{one[0]:.2f}" for one in rounds] for rounds in (ours, theirs))
    print(f"\nAttnLab: {', '.join(took_ours)} s; do_bench: {', '.join(took_theirs)} s")
    ratio = statistics.median(one[0] for one in ours) / statistics.median(one[0] for one in theirs)
    print(f"AttnLab ÷ do_bench: {ratio:.2f}")


if __name__ == "__main__":
    main()
