"""Every ratio of the runs that are compared, as a table: of their times, or of their peaks of memory."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnlab import tabular
from attnlab.comparison import MEMORY
from attnlab.run import Run
from attnlab.sweep import TIME
from attnlab.ui import tables
from attnlab.ui.tables import mib, number
from attnlab.ui.verdict_tables import text

ROWS = 12
COLUMNS = {
    "path": text("Path", 130, pinned=True),
    "seq": st.column_config.NumberColumn("Sequence", format="localized", pinned=True),
    "against A": text("Run", 60),
    "ratio": st.column_config.NumberColumn("÷ A", format="%.3f×", help="Above 1 it is slower, or needs more memory"),
    "low": st.column_config.NumberColumn("Low", format="%.3f×", help="The least that the intervals leave possible"),
    "high": st.column_config.NumberColumn(
        "High", format="%.3f×", help="The greatest that the intervals leave possible"
    ),
    "verdict": text("What is said of it", "large"),
}
UNITS = {TIME: "ms", MEMORY: "MiB"}


def draw(runs: Sequence[Run], of: str) -> None:
    """The ratios of the later runs to the first; `of` is one of comparison.QUANTITIES."""
    names, *found = tabular.ratio_rows(runs, of)
    first, other = names[3:5]  # the two amounts
    rows = [dict(zip(names, row, strict=True)) for row in found]
    if of == MEMORY:
        rows = [row | {name: mib(row[name]) for name in (first, other)} for row in rows]
    unit, two = UNITS[of], len(runs) == 2
    columns = COLUMNS | {first: number(f"A {unit}"), other: number(f"B {unit}" if two else unit)}
    config = {name: columns[name] for name in names if not (two and name == "against A")}
    shown = [{name: row[name] for name in config} for row in rows]
    tables.draw(f"runs_ratios_{of}", shown, config, "Every ratio and what is said of it", min(len(rows), ROWS))
