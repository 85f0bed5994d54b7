"""The ladder as a table: every path at one sequence length, fastest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from attnlab import units
from attnlab.device import PathStatus
from attnlab.ladder import ladder
from attnlab.run import Run
from attnlab.ui import tables
from attnlab.ui.tables import mib, number
from attnlab.ui.text import escape


def table(run: Run, seq: int, statuses: Iterable[PathStatus]) -> None:
    """Draws the ladder at `seq`; always a row for every path, so nothing moves while points arrive."""
    rungs = ladder(run, seq, statuses)
    slowest_ms = max((r.measurement.device_ms for r in rungs if r.place), default=None)
    rows: list[dict[str, Any]] = []
    for rung in rungs:
        m = rung.measurement if rung.place else None
        rows.append(
            {
                "place": rung.place,
                "path": rung.path,
                "device_ms": m and m.device_ms,
                "share": m and m.device_ms / slowest_ms,
                "speedup": rung.speedup,
                "peak_mib": mib(m.peak_bytes) if m else None,
                "error": m and m.error,
                "ran": m.provider if m else "",
                "note": rung.note,
            }
        )
    what = f"Every path at sequence {units.sequence(seq)}, fastest first"
    st.caption(f"{what} · {escape(run.mark)}" if run.mark else what)
    tables.draw("ladder", rows, CONFIG, f"{what}, {run.mark}" if run.mark else what)


CONFIG = {
    "place": st.column_config.NumberColumn("#", pinned=True, width=40),
    "path": st.column_config.TextColumn("Path", pinned=True, width=130),
    "device_ms": number("Device ms", help="Median time on the device of one call"),
    "share": st.column_config.ProgressColumn("Of the slowest", min_value=0, max_value=1, format="percent"),
    "speedup": st.column_config.NumberColumn("× standard", format="%.2f", help="Not where one is launch-bound"),
    "peak_mib": number("Peak MiB", help="The most memory allocated above the inputs"),
    "error": number("Error", 2, help="Relative error of sampled rows against float64"),
    "ran": st.column_config.TextColumn("What ran", width="medium"),
    "note": st.column_config.TextColumn("Notes, or why there is no number", width="large"),
}
