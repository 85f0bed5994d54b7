"""The table of every point: whatever became of it, with its reason, and no number where none was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attnlab.run import Run

if TYPE_CHECKING:
    import pandas as pd

MIB = 1024 * 1024
ROW_PX = 35
ROWS_MAX = 14


def frame(run: Run) -> pd.DataFrame:
    """One row for each measurement, in the order of the run. Times in ms, memory in MiB; missing where not measured."""
    import pandas as pd  # half a second that the first paint need not wait for

    rows = [
        {
            "path": m.path,
            "seq": m.seq,
            "status": m.status,
            "device_ms": m.device_ms,
            "low_ms": m.device_ms_low,
            "high_ms": m.device_ms_high,
            "samples": m.samples or None,
            "wall_ms": m.wall_ms,
            "first_call_s": m.first_call_s,
            "peak_mib": mib(m.peak_bytes),
            "tflops": m.tflops,
            "predicted_ms": m.predicted_ms,
            "predicted_mib": mib(m.predicted_bytes),
            "provider": m.provider,
            "reason": "; ".join(
                part for part in (m.reason, "launch-bound" if m.launch_bound else "", *m.notes) if part
            ),
            "pass": m.phase,
        }
        for m in run.measurements
    ]
    columns = list(CONFIG)
    texts = {"path", "status", "provider", "reason", "pass"}
    data = pd.DataFrame(rows, columns=columns)
    return data.astype(
        {name: "string" if name in texts else "Float64" for name in columns} | {"seq": "Int64", "samples": "Int64"}
    )


def mib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / MIB


CONFIG = {
    "path": st.column_config.TextColumn("Path", pinned=True, width=130),
    "seq": st.column_config.NumberColumn("Sequence", format="localized", pinned=True),
    "status": st.column_config.TextColumn("Status"),
    "device_ms": st.column_config.NumberColumn(
        "Device ms", format="%.4g", help="Median time on the device of one call"
    ),
    "low_ms": st.column_config.NumberColumn(
        "Low ms", format="%.4g", help="Lower end of the 95 % interval of the median"
    ),
    "high_ms": st.column_config.NumberColumn(
        "High ms", format="%.4g", help="Upper end of the 95 % interval of the median"
    ),
    "samples": st.column_config.NumberColumn("Samples"),
    "wall_ms": st.column_config.NumberColumn(
        "Wall ms", format="%.4g", help="What a caller waits: synchronise, call, synchronise"
    ),
    "first_call_s": st.column_config.NumberColumn(
        "First call s", format="%.3g", help="Compilation and set-up; never in the median"
    ),
    "peak_mib": st.column_config.NumberColumn(
        "Peak MiB", format="%.4g", help="The most memory allocated above the inputs"
    ),
    "tflops": st.column_config.NumberColumn("TFLOP/s", format="%.3g"),
    "predicted_ms": st.column_config.NumberColumn(
        "Predicted ms", format="%.4g", help="Not measured: what was expected"
    ),
    "predicted_mib": st.column_config.NumberColumn(
        "Predicted MiB", format="%.4g", help="Not measured: what was expected"
    ),
    "provider": st.column_config.TextColumn("What ran", width="medium"),
    "reason": st.column_config.TextColumn("Reason and notes", width="large"),
    "pass": st.column_config.TextColumn("Pass"),
}


def table(run: Run) -> None:
    """Draws the table at the height of the finished run, so that it does not grow while points arrive."""
    rows = min(len(run.sweep.seqs) * len(run.sweep.paths), ROWS_MAX)
    st.dataframe(
        frame(run),
        key="points",
        hide_index=True,
        height=ROW_PX * (rows + 1) + 3,
        column_config=CONFIG,
        placeholder="–",
        alt=f"Every point of the run{', ' + run.mark if run.mark else ''}",
    )
