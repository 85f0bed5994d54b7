"""Does the same sweep give the same numbers? `python tests/gpu/repeat.py [--workers 3]`.

The default sweep of this device, each time in a fresh worker, nothing taken from the store. Prints the medians and how far
apart they are, (highest - lowest) / lowest; ends with 1 when a point over 100 µs differs by more than 1 %, or a shorter one
by more than 5 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attnlab.lab import Lab
from attnlab.run import Run
from attnlab.store import Store
from attnlab.sweep import default_sweep
from attnlab.units import ms, sequence

LONG_MS, WITHIN, WITHIN_SHORT = 0.1, 0.01, 0.05


def one_run(folder: Path, idle_s: float = 0.0) -> Run:
    """The default sweep in a fresh worker, which has done nothing for `idle_s` seconds."""
    lab = Lab(Store(folder))
    try:
        while (worker := lab.snapshot().worker).state != "ready":
            assert worker.state != "failed", worker.text
            lab.changed(lab.snapshot().version, 1.0)
        time.sleep(idle_s)
        return lab.wait(lab.submit(default_sweep(worker.device.kind), fresh=True))
    finally:
        lab.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=3)
    count = parser.parse_args().workers
    with tempfile.TemporaryDirectory() as folder:
        runs = [one_run(Path(folder) / str(i)) for i in range(count)]
    print(f"{runs[0].device.name}, torch {runs[0].device.torch}\n")
    print(f"| path | sequence |{' ms |' * count} apart | clock MHz |\n|---|---|{'---|' * count}---|---|")
    failed = 0
    for m in runs[0].measurements:
        points = [run.get(m.path, m.seq) for run in runs]
        times_ms = [point.device_ms for point in points if point and point.ok]
        if len(times_ms) < count:
            print(f"| {m.path} | {sequence(m.seq)} | {' | '.join(point.status for point in points)} | | |")
            continue
        apart = max(times_ms) / min(times_ms) - 1
        good = apart <= (WITHIN if min(times_ms) > LONG_MS else WITHIN_SHORT)
        failed += not good
        clocks = ", ".join(f"{point.clock_mhz or 0:,.0f}" for point in points)
        print(
            f"| {m.path} | {sequence(m.seq)} | {' | '.join(map(ms, times_ms))} | {apart:.1%}"
            f"{'' if good else ' **too far**'} | {clocks} |",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
