"""Which samples count: a sample that cannot be, or that says something else than how long the call takes, is kept and used
for nothing.

The worker and the lab both screen a measurement: the worker to know when it has enough, the lab because it trusts no worker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from attnlab.device import Device
from attnlab.interval import median_interval
from attnlab.measurement import Measurement
from attnlab.roofline import Floor, floors, implausible

OUTLIER = 5.0  # times the smallest sample: something else was timed, such as a compilation


def sort_out(
    samples_ms: Sequence[float], limits: Sequence[Floor], unused: Collection[int] = ()
) -> tuple[dict[int, str], list[int]]:
    """({place: why} of the impossible ones, places of the outliers), in samples that are not `unused` already.

    Outliers are few: where as many samples lie far above the smallest as near it, as on a host that shares its cores, nobody
    knows which of the two the call takes. All count then, and the interval says how far apart they are.
    """
    candidates = [i for i in range(len(samples_ms)) if i not in unused]
    impossible = {i: why for i in candidates if (why := implausible(samples_ms[i], limits))}
    rest = [i for i in candidates if i not in impossible]
    smallest = min((samples_ms[i] for i in rest), default=0.0)
    far = [i for i in rest if samples_ms[i] > OUTLIER * smallest]
    return impossible, far if 2 * len(far) < len(rest) else []


def screened(m: Measurement, device: Device) -> Measurement:
    """The measurement with its median and interval taken from the samples that count; `suspect` when most cannot be.

    Screening it again changes nothing. Without samples the median alone is judged.
    """
    if not m.ok:
        return m
    limits = floors(m.problem, device, m.l2)
    if not m.samples_ms:
        reason = "reported ok without a time" if m.device_ms is None else implausible(m.device_ms, limits)
        return replace(m, status="suspect", reason=reason) if reason else m
    impossible, outliers = sort_out(m.samples_ms, limits, m.unused)
    unused = tuple(sorted({*m.unused, *impossible, *outliers}))
    counting = [ms for i, ms in enumerate(m.samples_ms) if i not in unused]
    notes = list(m.notes)
    if impossible:
        notes.append(f"{count(len(impossible), 'sample')} kept out: {next(iter(impossible.values()))}")
    if outliers:
        worst = max(m.samples_ms[i] for i in outliers)
        notes.append(
            f"{count(len(outliers), 'outlier')} kept out: up to {worst:.3g} ms, over {OUTLIER:g}× the smallest"
        )
    if impossible and len(impossible) >= len(counting):
        middle, low, high = median_interval([m.samples_ms[i] for i in impossible])
        return replace(
            m, status="suspect", reason=next(iter(impossible.values())), device_ms=middle, device_ms_low=low,
            device_ms_high=high, samples=0, unused=tuple(range(len(m.samples_ms))), notes=tuple(notes),
        )  # fmt: skip
    if not counting:
        return replace(m, status="suspect", reason="no sample counts: " + "; ".join(notes), samples=0)
    middle, low, high = median_interval(counting)
    return replace(
        m, device_ms=middle, device_ms_low=low, device_ms_high=high, samples=len(counting), unused=unused,
        notes=tuple(notes),
    )  # fmt: skip


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
