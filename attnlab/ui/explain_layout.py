"""The layout: what turning (batch, seq, heads, dim) into (batch, heads, seq, dim) costs, as a view and copied."""

from __future__ import annotations

import streamlit as st

from attnlab import cost, layout_figure, trip, units
from attnlab.device import Device
from attnlab.finding import Finding
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.ui import chart, headline
from attnlab.ui.explain_trip import NOTHING, kernels, marked, unbroken
from attnlab.ui.text import escape

HEIGHT = "max(230px, 30vh)"


def section(problem: AttentionProblem, run: Run | None, device: Device | None) -> None:
    found = trip.found(run, trip.STANDARD, problem.seq_q)
    view, copy = found.get(trip.VIEW), found.get(trip.COPY)
    tbs, _ = trip.device_tbs(device)
    moved = 2 * cost.query_bytes(problem)
    time = trip.ms_of(copy) if copy else trip.ms_at(moved, tbs)
    how = f"({run.mark})" if copy and run.mark else "measured" if copy else f"at {trip.rate(tbs)}" if tbs else ""
    taken = f", {units.ms(time)} {how}" if time else ""
    headline.spoken(
        unbroken(f"A transpose is free: a view. Making it contiguous moves {trip.decimal_size(moved)}{taken}.")
    )
    st.markdown(
        "flash-attn takes (batch, seq, heads, dim). Matrix products want each head's tokens side by side: hence copies."
    )
    alt = "Where the first tokens of one head lie in memory, in either layout"
    chart.plotly_chart(layout_figure.addresses(problem), key="w_addresses", height=HEIGHT, alt=alt)
    lies, strided, copied = (str(part).replace(" ", "\u00a0") for part in layout_figure.strides(problem))
    nothing_moves = escape(view.text) if view else "a view: no kernel, no byte moved"
    rows = [
        ("Q as it is given", lies, "0 B", "0 ms", NOTHING, ""),
        ("`q.transpose(1,\u00a02)`", strided, "0 B", "0 ms", measured_ms(view), nothing_moves),
        ("`.contiguous()` of that", copied, trip.decimal_size(moved), units.ms(trip.ms_at(moved, tbs)),
         measured_ms(copy), reached(moved, copy)),
    ]  # fmt: skip
    at = f"At\u00a0{trip.rate(tbs)}" if tbs else "At bandwidth"
    names = ("Of Q", "Strides, in elements", "Moves", at, "Measured", f"What runs{marked(run)}")
    table = {unbroken(name): [unbroken(cells[i]) for cells in rows] for i, name in enumerate(names)}
    st.table(table, border="horizontal", hide_index=True, alt="What a transpose and a contiguous copy of Q cost")


def measured_ms(finding: Finding | None) -> str:
    time = trip.ms_of(finding)
    return "0 ms" if time == 0 else units.ms(time)


def reached(moved: int, finding: Finding | None) -> str:
    """The kernel and its rate; what it will do, before it has been measured."""
    if finding is None:
        return "reads Q once, writes it once"
    tbs = trip.tbs_of(moved, trip.ms_of(finding))
    return kernels(finding.text) + (f" · {trip.rate(tbs)}" if tbs else "")
