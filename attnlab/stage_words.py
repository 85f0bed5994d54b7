"""What a step of a talk says of what was measured, in one sentence for a hall: no more than stands on the chart.

    "From 128 to 512, 4× the tokens, standard takes 5.1× as long."

Where standard and another path are both to be seen it is the sentence of the live page.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnlab import summary, units
from attnlab.run import Run

QUANTITIES = {"latency": ("device_ms", "takes {} as long"), "memory": ("peak_bytes", "adds {} as much memory")}


def sentence(run: Run, chart: str, paths: Sequence[str]) -> str:
    """`paths` are those that are drawn, `chart` is one of attnlab.talk.CHARTS. Ends with a full stop."""
    said = grew(run, chart, paths[0]) if len(paths) == 1 and len(run.sweep.paths) > 1 else ""
    return said or summary.sentence(run)


def grew(run: Run, chart: str, path: str) -> str:
    """How much more the longest sequence costs than the shortest; "" where not both are measured."""
    if chart not in QUANTITIES:
        return ""
    name, words = QUANTITIES[chart]
    known = [m for m in sorted(run.measurements, key=lambda m: m.seq) if m.path == path and m.ok and getattr(m, name)]
    if len(known) < 2:
        return ""
    first, last = known[0], known[-1]
    more = units.times(getattr(last, name) / getattr(first, name))
    between = (
        f"From {units.sequence(first.seq)} to {units.sequence(last.seq)}, {_plain(last.seq / first.seq)} the tokens,"
    )
    bound = " (the host's launch cost is in the first)" if first.launch_bound and chart == "latency" else ""
    mark = f" ({run.mark})" if run.mark else ""
    return f"{between} {path} {words.format(more)}{bound}{mark}."


def _plain(ratio: float) -> str:
    """4.0 → "4×"."""
    return f"{ratio:,.0f}×" if abs(ratio - round(ratio)) < 0.05 else units.times(ratio)
