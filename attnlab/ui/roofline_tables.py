"""Tables of the roofline page: every measured point against its floor, and the estimate on paper beside the counted one."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnlab import textbook
from attnlab.estimate import OFF_SHARE, Standing
from attnlab.ui import tables
from attnlab.ui.tables import number
from attnlab.units import percent

ROWS_MAX = 12


def points(standings: Sequence[Standing], mark: str) -> None:
    """A row for each point that has a time; longest sequences first, since that is where the roof is."""
    rows = [
        {
            "path": s.measurement.path,
            "seq": s.measurement.seq,
            "share": s.share,
            "floor": s.floor.ms,
            "predicted": s.predicted.ms,
            "measured": s.measurement.device_ms,
            "deviation": s.deviation,
            "bound": s.floor.bound,
            "intensity": s.flop_per_byte,
            "tflops": s.tflops,
            "note": note(s),
        }
        for s in sorted(standings, key=lambda s: -s.measurement.seq)
    ]
    tables.draw("r_points", rows, POINTS, f"Every point against its floor{', ' + mark if mark else ''}", ROWS_MAX)


def note(s: Standing) -> str:
    """What to know of the point, in words."""
    m = s.measurement
    above = ["above the roof: impossible, or the data came out of a cache"] if s.impossible else []
    off = [f"model off by more than {percent(OFF_SHARE)}"] if s.off else []
    return "; ".join([*above, *off, *(["launch-bound"] if m.launch_bound else []), *(["suspect"] if not m.ok else [])])


def on_paper() -> None:
    """The textbook's columns, and beside them what the counted estimate says."""
    rows = []
    for seq in textbook.SEQS:
        wrong, right = textbook.textbook(seq), textbook.counted(seq)
        heads_only = textbook.counted(seq, passes=textbook.TEXTBOOK_PASSES)
        _, standard_ms, _, speedup, bound, _ = textbook.row(seq, *right)
        cells = [*textbook.row(seq, *wrong), f"{textbook.speedup(*heads_only):.1f}x", standard_ms, speedup, bound]
        rows.append(dict(zip(PAPER, cells, strict=True)))
    tables.draw("r_paper", rows, PAPER, "The textbook's estimate on an A100 and the counted one beside it", len(rows))
    roof = textbook.ROOF
    st.caption(
        f"A100: {roof.peak_tflops:g} TFLOP/s dense, {roof.bandwidth_tbs:g} TB/s; d_model {textbook.D_MODEL}, one batch item, "
        f"2 bytes an element. Left the textbook; right counted, with {textbook.HEADS} heads."
    )


POINTS = {
    "path": st.column_config.TextColumn("Path", pinned=True, width=125),
    "seq": st.column_config.NumberColumn("Sequence", pinned=True, format="localized"),
    "share": st.column_config.ProgressColumn(
        "Of the floor", min_value=0, max_value=1, format="percent", help="Floor over measured time; 100 % is the roof"
    ),
    "floor": number("Floor ms", help="The larger of FLOPs over peak and bytes over bandwidth"),
    "predicted": number(
        "Predicted ms", help="The same with what a matrix product and a copy reached there, where known"
    ),
    "measured": number("Measured ms", help="Median device time of one call"),
    "deviation": st.column_config.NumberColumn("Deviation", format="percent", help="Predicted over measured, less one"),
    "bound": st.column_config.TextColumn("Bound by", width="small"),
    "intensity": number("FLOP/B"),
    "tflops": number("TFLOP/s"),
    "note": st.column_config.TextColumn("Notes", width="large"),
}
PAPER = {
    **{name: st.column_config.TextColumn(name) for name in textbook.COLUMNS},
    "heads": st.column_config.TextColumn(
        "12 heads, 4 passes", help="A score matrix for each head: the first mistake put right"
    ),
    "counted_ms": st.column_config.TextColumn(
        "Counted: standard (ms)", help="A score matrix for each head, six passes"
    ),
    "counted": st.column_config.TextColumn("12 heads, 6 passes"),
    "counted_bound": st.column_config.TextColumn("Counted: std bound"),
}
