"""Every ratio of the runs that are compared, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnlab import tabular
from attnlab.run import Run
from attnlab.ui.points import number
from attnlab.ui.verdict_tables import text

ROWS = 12
ROW_PX = 37
RATIOS = {
    "path": text("Path", 130, pinned=True),
    "seq": st.column_config.NumberColumn("Sequence", format="localized", pinned=True),
    "against A": text("Run", 60),
    "A_ms": number("A ms"),
    "ms": number("B ms"),
    "ratio": st.column_config.NumberColumn("÷ A", format="%.3f×", help="Time ÷ time of A: above 1 it is slower"),
    "low": st.column_config.NumberColumn("Low", format="%.3f×", help="The least that the intervals leave possible"),
    "high": st.column_config.NumberColumn(
        "High", format="%.3f×", help="The greatest that the intervals leave possible"
    ),
    "verdict": text("What is said of it", "large"),
}


def draw(runs: Sequence[Run]) -> None:
    """Every ratio of the later runs to the first, as a table."""
    import pandas as pd  # half a second that the first paint need not wait for

    names, *rows = tabular.ratio_rows(runs)
    data = pd.DataFrame(rows, columns=names)
    texts = {"path", "against A", "verdict"}
    kinds = {name: "string" if name in texts else "Int64" if name == "seq" else "Float64" for name in names}
    st.dataframe(
        data.astype(kinds).drop(columns="against A") if len(runs) == 2 else data.astype(kinds),
        key="runs_ratios",
        hide_index=True,
        height=ROW_PX * (min(len(rows), ROWS) + 1) + 3,
        column_config=RATIOS if len(runs) == 2 else {**RATIOS, "ms": number("ms")},
        placeholder="–",
        alt="Every ratio with its interval and what is said of it",
    )
