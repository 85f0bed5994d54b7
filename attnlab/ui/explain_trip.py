"""Standard attention's trip through memory beside flash's: two charts, and a table of what each operation is."""

from __future__ import annotations

import re
from itertools import groupby

import streamlit as st

from attnlab import trip, trip_figures, units
from attnlab.device import Device
from attnlab.finding import Finding
from attnlab.measurement import STATUS_WORDS
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.ui import chart, headline
from attnlab.ui.text import escape

CHART_HEIGHT = "max(260px, 34vh)"
NOTHING = "–"
COUNTED = ":small[:violet[({})]]"  # beside what is counted on paper
COUNTED_HELP = (
    ":small[:violet[(In brackets)] what the hardware counted, read with ncu: each kernel begins with an empty L2, and what "
    "the L2 still holds of its writing when it ends, at most the size of the L2, is not in it.]"
)


def section(problem: AttentionProblem, run: Run | None, device: Device | None) -> None:
    """Two bars at a glance, then every operation: bytes, time at the device's bandwidth, and what was measured."""
    standard, flash = (trip.found(run, path, problem.seq_q) for path in (trip.STANDARD, trip.FLASH))
    tbs, _ = trip.device_tbs(device)
    headline.spoken(trip.sentence(problem), lines=1)
    st.markdown(f"{escape(trip.scores_words(problem))}. Flash never writes them.")
    left, right = st.columns(2, gap="small")
    with left:
        alt = "Bytes through device memory, standard's operations stacked against flash"
        chart.plotly_chart(trip_figures.moved(problem), key="w_moved", height=CHART_HEIGHT, alt=alt)
    with right:
        where = run.mark or (device.name if device else "") if run else ""
        figure = trip_figures.timed(problem, standard, flash, tbs, where, missing(run, problem))
        alt = "Time of each of standard's operations stacked against flash"
        chart.plotly_chart(figure, key="w_timed", height=CHART_HEIGHT, alt=alt)
    steps = trip.operations(problem)
    rows = [
        row(step.name, trip.copies(problem, step.name), step, standard.get(step.name), tbs, bool(standard))
        for step in steps
    ]
    whole = trip.MemoryStep("standard", sum(s.read_bytes for s in steps), sum(s.write_bytes for s in steps))
    names = [step.name for step in steps]
    total = trip.total_ms(standard, names), trip.total_counted(standard, names)
    rows.append(row("**:orange[standard], all**", (), whole, None, tbs, False, *total))
    best = trip.flash(problem)
    rows.append(row("**:blue[flash]**", (), best, flash.get(trip.KERNEL), tbs, bool(flash)))
    at = f"At\u00a0{trip.rate(tbs)}" if tbs else "At bandwidth"
    names = ("Operation", "Reads", "Writes", at, "Measured", "Achieved", f"Kernels that ran{marked(run)}")
    table = {unbroken(name): [unbroken(cells[i]) for cells in rows] for i, name in enumerate(names)}
    st.table(
        table, border="horizontal", hide_index=True, alt="Every operation: bytes, time at bandwidth, what was measured"
    )
    if any(trip.counted_bytes(finding) for finding in (*standard.values(), *flash.values())):
        st.markdown(COUNTED_HELP)
    elif why := trip.not_counted(run, problem.seq_q):
        st.markdown(f":small[The counters were not read: {escape(why)}.]")


def missing(run: Run | None, problem: AttentionProblem) -> str:
    """Why standard has no time, in a word or two; empty where it has, or is still to come."""
    m = run.get(trip.STANDARD, problem.seq_q) if run else None
    return STATUS_WORDS[m.status] if m and not m.findings else ""


def row(
    name: str,
    copies: tuple[str, ...],
    step: trip.MemoryStep,
    finding: Finding | None,
    tbs: float | None,
    measured: bool,
    ms: float | None = None,
    counted: tuple[float, float] | None = None,
) -> tuple[str, ...]:
    """The cells of one operation; `ms` and `counted` where no single finding has them."""
    if finding:
        ms, counted = trip.ms_of(finding), trip.counted_bytes(finding)
    reached = trip.tbs_of(step.moved_bytes, ms)
    copied = ", ".join(copy.removeprefix("copy of ") for copy in copies)
    before = f" :small[:gray[+ copying {copied}]]".replace(" ", "\u00a0") if copies else ""
    return (
        f"{name}{before}",
        *(
            trip.decimal_size(model) + (f" {COUNTED.format(trip.decimal_size(seen))}" if seen is not None else "")
            for model, seen in zip((step.read_bytes, step.write_bytes), counted or (None, None), strict=True)
        ),
        units.ms(trip.ms_at(step.moved_bytes, tbs)),
        units.ms(ms),
        trip.rate(reached) if reached else NOTHING,
        f":small[{kernels(finding.text)}]" if finding else "no such operation measured" if measured else "",
    )


def kernels(text: str) -> str:
    """Names of kernels as markdown, those that follow upon one another counted; a long name may break behind an underscore."""
    counted = [(name, len(list(same))) for name, same in groupby(text.split(" + "))]
    said = " + ".join(f"{count} × {name}" if count > 1 else name for name, count in counted)
    return escape(said).replace("\\_", "\\_\u200b")


def unbroken(words: str) -> str:
    """A figure stays on one line with its unit; a sentence may break."""
    return re.sub(r"(?<=\d) (?=[kMGT]?B\b|m?s\b|[GT]B/s)", "\u00a0", words)


def marked(run: Run | None) -> str:
    return f" :violet-badge[{escape(run.mark)}]" if run and run.mark else ""
