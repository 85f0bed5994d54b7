"""A long day of a lab: `python tests/benchmarks/soak.py [--points 1000] [--worker fake|cpu]`.

Many short runs, one point in twenty an accident, and then the accounts:

    fake   a worker that computes nothing (tests/fake_worker.py); kills, exits, lost contexts, half lines, silence, memory
    cpu    the real worker with tiny shapes and the paths of attnlab.paths.faulty: out of memory, exits, calls that hang

Printed are the points by status, and, each with its bound,
    accidents      those that were injected, and points that say so: the very same
    memory         what the server and the worker hold at least between two runs, in the last tenth over a tenth once all is
                   warm: within 5 %. The least, for what a call has borrowed comes and goes, and a leak raises the floor
    while it lives the same of a worker that served 20 runs and more, its last quarter over its second: within 5 %
    descriptors, threads, children     of the server between runs: the same in the end as once warm
    store          passes its integrity check and holds every point
It ends with 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ["ATTNLAB_FAULTY"] = "1"  # before attnlab.paths is imported, here and in the worker

from attnlab.database import check, reading  # noqa: E402
from attnlab.lab import Lab  # noqa: E402
from attnlab.problem import AttentionProblem  # noqa: E402
from attnlab.store import Store  # noqa: E402
from attnlab.sweep import Sweep  # noqa: E402

SHARE = 0.05  # of the points are accidents
FLAT = 0.05  # memory may grow by this share
WARM = 0.3  # of the points, until caches are full and the runs that a lab keeps are there
ACCIDENTS = ("fault", "timeout", "oom")
# What becomes a point of another status: the fake worker's accidents, and those of the faulty paths.
STATUS = {"oom_at": "oom", "hang_at": "timeout", "faulty-oom": "oom", "faulty-hang": "timeout"}

Point = tuple[int, int, str]  # (number of the run, sequence, path)


@dataclass
class Accounts:
    """What was seen. `broken`: a line for each bound that was."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    injected: dict[Point, str] = field(default_factory=dict)
    found: dict[Point, str] = field(default_factory=dict)
    samples: list[dict[str, int]] = field(default_factory=list)  # one between two runs
    workers: dict[int, list[int]] = field(default_factory=dict)  # process id → its memory, in bytes, after each run
    broken: list[str] = field(default_factory=list)

    def window(self, name: str, last: bool) -> list[int]:
        """A tenth of the samples: the last one, or the first one that is warm."""
        size = max(1, len(self.samples) // 10)
        start = len(self.samples) - size if last else int(WARM * len(self.samples))
        return [sample[name] for sample in self.samples[start : start + size]]

    def growth(self, name: str) -> float:
        return min(self.window(name, last=True)) / min(self.window(name, last=False)) - 1

    @property
    def lifetimes(self) -> list[float]:
        """How much each long-lived worker has grown."""
        lived = [(held, len(held) // 4) for held in self.workers.values() if len(held) >= 20]
        return [min(held[-quarter:]) / min(held[quarter : 2 * quarter]) - 1 for held, quarter in lived]


def sweeps(points: int, worker: str) -> list[Sweep]:
    """Sweeps of 6 points each that hold as many points. For a worker that computes nothing the batch is the number of the
    run, by which it draws its accidents; for a real one shapes come back, or its memory would grow with them."""
    found, accidents = [], 0
    for number in range(1, points // 6 + 2):
        paths = ("standard", "flash")
        seqs = (128, 256, 512)
        if worker == "cpu":
            seqs = (32, 64, 512)
            due = round(6 * number * SHARE)  # a path that is faulty at 512 and fine below takes flash's place
            if due > accidents:
                accidents = due
                kinds = ("oom", "exit", "oom", "oom", "hang") if accidents % 5 == 0 else ("oom", "exit", "oom", "oom")
                paths = ("standard", f"faulty-{kinds[accidents % len(kinds)]}")
        shape = dict(heads=1, head_dim=16, dtype="float32") if worker == "cpu" else dict(heads=32, head_dim=128)
        batch = number if worker == "fake" else 1 + number % 4
        problem = AttentionProblem(batch=batch, seq_q=seqs[-1], **shape)
        found.append(Sweep(problem=problem, seqs=seqs, paths=paths, refine=False, budget_s=3600))
    return found


def soak(points: int, worker: str, folder: Path) -> Accounts:
    """Runs them all in a lab of its own, whose history lies in `folder`."""
    log = folder / "injected"
    log.touch()
    mode = {"faults": {"share": SHARE, "log": str(log)}}
    fake = [sys.executable, "-u", str(ROOT / "tests" / "fake_worker.py")]
    command = fake if worker == "fake" else [sys.executable, "-u", "-m", "attnlab.worker", "--device", "cpu"]
    accounts, asked = Accounts(), sweeps(points, worker)
    with patch.dict(os.environ, {"FAKE_WORKER": json.dumps(mode), "TMPDIR": str(folder), "ATTNLAB_LOCKS": str(folder)}):
        began = time.monotonic()
        lab = Lab(Store(folder), worker_command=command, time_limit_s=0.5 if worker == "fake" else 5.0)
        fill_cache(lab.store)
        try:
            for number, sweep in enumerate(asked, start=1):
                one_run(lab, number, sweep, accounts)
                look(lab, accounts)
        finally:
            lab.close()
            accounts.seconds = time.monotonic() - began
            lab.store.close()
    if worker == "fake":
        for line in log.read_text().splitlines():
            number, seq, path, kind = json.loads(line)
            accounts.injected[number, seq, path] = STATUS.get(kind, "fault")
    else:
        for number, sweep in enumerate(asked, start=1):
            for path in sweep.paths:
                if path.startswith("faulty-"):
                    accounts.injected[number, 512, path] = STATUS.get(path, "fault")
    settle(accounts, asked, folder)
    return accounts


def fill_cache(store: Store) -> None:
    """SQLite keeps 2 MB of the file's pages, and a history of some days fills them: that is no leak of these points."""
    for _ in range(800):
        store.event("before", "note", {"text": "x" * 4_000})


def one_run(lab: Lab, number: int, sweep: Sweep, accounts: Accounts) -> None:
    run = lab.wait(lab.submit(sweep, fresh=True), 600)
    if run.state != "done" or len(run.measurements) != sweep.point_count:
        accounts.broken.append(f"run {number} is {run.state} with {len(run.measurements)} points ({run.reason})")
    for m in run.measurements:
        accounts.statuses[m.status] += 1
        if m.status in ACCIDENTS and not m.foreseen:
            accounts.found[number, m.seq, m.path] = m.status


def look(lab: Lab, accounts: Accounts) -> None:
    """At the server and its worker, once that is ready again."""
    while (snapshot := lab.snapshot()).worker.state not in ("ready", "failed"):
        lab.changed(snapshot.version, 1.0)
    pid = lab._supervisor._process._popen.pid if lab._supervisor._process else 0
    accounts.samples.append({
        "server": resident(os.getpid()), "worker": resident(pid), "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(), "children": children(),
    })  # fmt: skip
    accounts.workers.setdefault(pid, []).append(accounts.samples[-1]["worker"])


def resident(pid: int) -> int:
    """Bytes of memory that a process holds for itself: what it shares with others, such as libraries, is not counted."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def children() -> int:
    """Processes that this one has started, those that nobody has fetched included."""
    return sum(len((task / "children").read_text().split()) for task in Path("/proc/self/task").iterdir())


def settle(accounts: Accounts, asked: list[Sweep], folder: Path) -> None:
    """Every bound but those of memory, which need a long day: those are in `memory_bounds`."""
    if accounts.injected != accounts.found:
        odd = accounts.injected.items() ^ accounts.found.items()
        accounts.broken.append(f"accidents and what the points say differ at {sorted(map(str, odd))[:5]}")
    expected = sum(sweep.point_count for sweep in asked)
    if accounts.statuses.total() != expected:
        accounts.broken.append(f"{accounts.statuses.total()} of {expected} points are accounted for")
    for name in ("descriptors", "threads", "children"):
        if median(accounts.window(name, last=True)) != median(accounts.window(name, last=False)):
            accounts.broken.append(f"{name}: {[sample[name] for sample in accounts.samples][-5:]} in the end")
    db = reading(folder / "attnlab.db")
    check(db)
    rows = db.execute("SELECT run_id, data FROM events WHERE kind = 'measurement'").fetchall()
    db.close()
    held = {(row["run_id"], (m := json.loads(row["data"]))["path"], m["seq_kv"]) for row in rows}
    if len(held) != expected:
        accounts.broken.append(f"the store holds {len(held)} of {expected} points")


def memory_bounds(accounts: Accounts) -> None:
    for name in ("server", "worker"):
        if accounts.growth(name) > FLAT:
            accounts.broken.append(f"{name}'s memory grew by {accounts.growth(name):.1%}")
    if accounts.lifetimes and max(accounts.lifetimes) > FLAT:
        accounts.broken.append(f"a worker grew by {max(accounts.lifetimes):.1%} while it lived")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--worker", choices=("fake", "cpu"), default="fake")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        accounts = soak(arguments.points, arguments.worker, Path(folder))
    memory_bounds(accounts)
    mib = 1 << 20
    print(f"{accounts.statuses.total():,} points in {accounts.seconds:.0f} s: "
          + ", ".join(f"{count:,} {status}" for status, count in accounts.statuses.most_common()))  # fmt: skip
    print(f"accidents            {len(accounts.injected)} injected, {len(accounts.found)} found, "
          f"{len(accounts.workers)} workers")  # fmt: skip
    for name in ("server", "worker"):
        before, after = (min(accounts.window(name, last)) / mib for last in (False, True))
        print(f"memory of the {name} {before:.1f} → {after:.1f} MiB ({accounts.growth(name):+.1%})")
    if accounts.lifetimes:
        print(f"while it lives       {max(accounts.lifetimes):+.1%} at most, of {len(accounts.lifetimes)} workers")
    for name in ("descriptors", "threads", "children"):
        print(f"{name:20} {median(accounts.window(name, False)):g} → {median(accounts.window(name, True)):g}")
    for line in accounts.broken:
        print(f"BROKEN: {line}")
    return 1 if accounts.broken else 0


if __name__ == "__main__":
    sys.exit(main())
