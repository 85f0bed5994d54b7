"""The ladder: every path there is on one problem, fastest first, and why the others have no number.

for rung in ladder(run, 4096, worker.paths): print(rung.path, rung.device_ms, rung.note)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attnlab.device import PathStatus
from attnlab.measurement import STATUS_WORDS, UNREACHED, Measurement
from attnlab.paths import PATHS
from attnlab.run import Run
from attnlab.summary import BASELINE

NOT_IN_RUN = "not in this run; tick it to measure it"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One path on one problem. `place` counts from 1 among those that have a number, None for the others.

    speedup   device_ms of standard over its own, only between two `ok` points of which none is launch-bound
    note      what to know of the number, or why there is none, in words
    """

    path: str
    place: int | None = None
    measurement: Measurement | None = None
    speedup: float | None = None
    note: str = ""


def ladder(run: Run, seq: int, statuses: Iterable[PathStatus] = ()) -> tuple[Rung, ...]:
    """Every path at `seq` keys: those with a number by device_ms, then the rest in the order of the registry.

    `statuses` is what the worker says of the paths that are not in the run.
    """
    here = {status.name: status for status in statuses}
    standard = run.get(BASELINE, seq)
    points = {path: m for path in run.sweep.paths if (m := run.get(path, seq)) is not None}
    measured = sorted((m for m in points.values() if m.ok and m.device_ms), key=lambda m: m.device_ms)
    rungs = [
        Rung(path=m.path, place=place, measurement=m, speedup=_speedup(standard, m), note=_remarks(m))
        for place, m in enumerate(measured, start=1)
    ]
    for path in dict.fromkeys([*PATHS, *run.sweep.paths]):
        m = points.get(path)
        if m is None or m not in measured:
            rungs.append(Rung(path=path, measurement=m, note=_why_not(run, path, m, here.get(path))))
    return tuple(rungs)


def _speedup(standard: Measurement | None, m: Measurement) -> float | None:
    fair = standard is not None and standard.ok and not standard.launch_bound and not m.launch_bound
    return standard.device_ms / m.device_ms if fair and standard.device_ms else None


def _remarks(m: Measurement) -> str:
    return "; ".join(["launch-bound: no winner among such"] * m.launch_bound + list(m.notes))


def _why_not(run: Run, path: str, m: Measurement | None, status: PathStatus | None) -> str:
    if m is not None and m.status != UNREACHED:
        return f"{STATUS_WORDS[m.status]}: {m.reason}" if m.reason else STATUS_WORDS[m.status]
    if path in run.sweep.paths:
        return "still to be measured" if run.active else STATUS_WORDS[UNREACHED] if m else "not measured at this length"
    if status is not None and not status.usable:
        return f"{status.state}: {status.reason}" if status.reason else status.state
    return NOT_IN_RUN
