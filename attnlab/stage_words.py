"""What a step of a talk says of what was measured, in one sentence for a hall: no more than stands on the chart.

    "From 128 to 512, 4× the tokens, standard takes 5.1× as long."

Where standard and another path are both to be seen it is the sentence of the live page.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnlab import summary, units
from attnlab.run import Run

QUANTITIES = {
    "latency": ("device_ms", "takes", "as long", units.ms),
    "memory": ("peak_bytes", "adds", "as much memory", units.size),
}
WIDE = 1.5  # the largest ratio that the intervals allow over the smallest: from there on both are said


def sentence(run: Run, chart: str, paths: Sequence[str]) -> str:
    """`paths` are those that are drawn, `chart` is one of attnlab.talk.CHARTS. Ends with a full stop."""
    said = grew(run, chart, paths[0]) if len(paths) == 1 and len(run.sweep.paths) > 1 else ""
    return said or summary.sentence(run)


def grew(run: Run, chart: str, path: str) -> str:
    """How much more the longest sequence costs than the shortest; the one point where there is one, "" where none is."""
    if chart not in QUANTITIES:
        return ""
    name, verb, more, written = QUANTITIES[chart]
    known = [m for m in sorted(run.measurements, key=lambda m: m.seq) if m.path == path and m.ok and getattr(m, name)]
    if not known:
        return ""
    first, last = known[0], known[-1]
    mark = f" ({run.mark})" if run.mark else ""
    if first is last:
        return f"At {units.sequence(last.seq)} {path} {verb} {written(getattr(last, name))}{mark}."
    between = (
        f"From {units.sequence(first.seq)} to {units.sequence(last.seq)}, {_plain(last.seq / first.seq)} the tokens"
    )
    ratio = units.times(getattr(last, name) / getattr(first, name))
    if chart == "latency" and first.interval_ms and last.interval_ms:
        low, high = last.interval_ms[0] / first.interval_ms[1], last.interval_ms[1] / first.interval_ms[0]
        ratio = ratio if high < WIDE * low else f"{units.times(low)} to {units.times(high)}"
    bound = ", the host's launch cost in the first" if first.launch_bound and chart == "latency" else ""
    return f"{between}, {path} {verb} {ratio} {more}{bound}{mark}."


def _plain(ratio: float) -> str:
    """4.0 → "4×"."""
    return f"{ratio:,.0f}×" if abs(ratio - round(ratio)) < 0.05 else units.times(ratio)
