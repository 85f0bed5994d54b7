"""Every ratio of the runs that are compared, as a table: of their times, or of their peaks of memory."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnlab import tabular
from attnlab.comparison import MEMORY
from attnlab.run import Run
from attnlab.sweep import TIME
from attnlab.ui.points import mib, number
from attnlab.ui.verdict_tables import text

ROWS = 12
ROW_PX = 37
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
    import pandas as pd  # half a second that the first paint need not wait for

    names, *rows = tabular.ratio_rows(runs, of)
    first, other = names[3:5]  # the two amounts
    data = pd.DataFrame(rows, columns=names)
    texts = {"path", "against A", "verdict"}
    kinds = {name: "string" if name in texts else "Int64" if name == "seq" else "Float64" for name in names}
    data = data.astype(kinds)
    if of == MEMORY:
        data[[first, other]] = data[[first, other]].map(mib, na_action="ignore")
    unit, two = UNITS[of], len(runs) == 2
    st.dataframe(
        data.drop(columns="against A") if two else data,
        key=f"runs_ratios_{of}",
        hide_index=True,
        height=ROW_PX * (min(len(rows), ROWS) + 1) + 3,
        column_config=COLUMNS | {first: number(f"A {unit}"), other: number(f"B {unit}" if two else unit)},
        placeholder="–",
        alt="Every ratio and what is said of it",
    )
