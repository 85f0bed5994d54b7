"""What a sweep costs: `python tests/benchmarks/sweep.py [--rounds N]` on this machine's device, with its default sweep.

Prints, for a worker that has started and for each round,
    first point        seconds from the submit to the first point in a snapshot
    quick pass         seconds until every point has its first measurement
    whole sweep        seconds until the refinement has ended
    wall ÷ samples     wall time of the whole sweep over the time that the device spent inside samples
The first round compiles and fills caches; the later ones are what a warm worker does. --steps lists the last round's
steps, in seconds from the submit, with samples and half of each interval.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attnlab.lab import Lab
from attnlab.store import Store
from attnlab.sweep import Sweep, default_sweep


def one_round(lab: Lab, sweep: Sweep) -> dict[str, float]:
    started = time.perf_counter()
    run_id = lab.submit(sweep, fresh=True)
    points = len(sweep.seqs) * len(sweep.paths)
    in_samples_s, seen, figures = 0.0, {}, {}
    while True:
        snapshot = lab.snapshot(run_id)
        run, now = snapshot.run, time.perf_counter() - started
        for m in run.measurements:
            if seen.get((m.path, m.seq, m.phase)) is None:
                seen[m.path, m.seq, m.phase] = m
                in_samples_s += m.in_samples_s
        if run.measurements:
            figures.setdefault("first point", now)
        if len(run.measurements) == points:
            figures.setdefault("quick pass", now)
        if not run.active:
            assert run.state == "done", run.reason
            return {**figures, "whole sweep": now, "wall ÷ samples": now / in_samples_s}
        lab.changed(snapshot.version, 1.0)


def steps(lab: Lab, run_id: str) -> None:
    events = lab.store.events(run_id)
    for at, kind, data in events:
        if kind == "measurement" and data["status"] == "ok":
            width = (data["device_ms_high"] - data["device_ms_low"]) / 2 / data["device_ms"]
            print(
                f"{at - events[0][0]:7.3f} {data['phase']:8} {data['path']:10} {data['seq_kv']:7,} {data['device_ms']:9.4f} ms"
                f" ±{width:5.1%} {data['samples']:4} samples, {data['in_samples_s']:.3f} s in them {data['notes'] or ''}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Store(Path(folder)))
        try:
            while (worker := lab.snapshot().worker).state != "ready":
                assert worker.state != "failed", worker.text
                time.sleep(0.05)
            sweep = default_sweep(worker.device.kind)
            print(
                f"{worker.device.name}, torch {worker.device.torch}; {sweep.problem}, {sweep.seqs[0]} to {sweep.seqs[-1]:,}"
            )
            for number in range(options.rounds):
                figures = one_round(lab, sweep)
                print(
                    f"round {number}: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()),
                    flush=True,
                )
            if options.steps:
                steps(lab, lab.snapshot().run.id)
        finally:
            lab.close()


if __name__ == "__main__":
    main()
