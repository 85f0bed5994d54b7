"""The table of every point: whatever became of it, with its reason, and no number where none was measured."""

from __future__ import annotations

from typing import Any

import streamlit as st

from attnlab import summary
from attnlab.figures import tflops
from attnlab.measurement import CLOCK_SHIFT, UNREACHED
from attnlab.run import Run
from attnlab.ui import tables
from attnlab.ui.tables import mib, number

ROWS_MAX = 14


def rows(run: Run) -> list[dict[str, Any]]:
    """One row for each measurement, in the order of the run, and one for all that nobody began. Times in ms, memory in MiB;
    missing where not measured."""
    found: list[dict[str, Any]] = [
        {
            "path": m.path,
            "seq": m.seq,
            "status": m.status,
            "device_ms": m.device_ms,
            "low_ms": m.device_ms_low,
            "high_ms": m.device_ms_high,
            "samples": m.samples or None,
            "unused": len(m.unused) or None,
            "graph_ms": m.graph_ms,
            "wall_ms": m.wall_ms,
            "host_ms": m.host_ms,
            "first_call_s": m.first_call_s,
            "peak_mib": mib(m.peak_bytes),
            "reserved_mib": mib(m.reserved_bytes),
            "used_mib": mib(m.device_used_bytes),
            "error": m.error,
            "standard_error": m.standard_error,
            "tflops": m.tflops,
            "dense_tflops": tflops(m, "dense"),
            "clock_mhz": m.clock_mhz,
            "clock_moved": f"⚠ {m.clock_mhz_low:,.0f} to {m.clock_mhz_high:,.0f} MHz" if m.clock_moved else "",
            "throttle": ", ".join(m.throttle),
            "l2": m.l2,
            "predicted_ms": m.predicted_ms,
            "predicted_mib": mib(m.predicted_bytes),
            "provider": m.provider,
            "reason": "; ".join(
                part for part in (m.reason, "launch-bound" if m.launch_bound else "", *m.notes) if part
            ),
            "pass": m.phase,
        }
        for m in run.reached
    ]
    if left := summary.unreached(run):
        found.append({"path": "all others" if found else "all", "status": UNREACHED, "reason": left})
    return found


CONFIG = {
    "path": st.column_config.TextColumn("Path", pinned=True, width=130),
    "seq": st.column_config.NumberColumn("Sequence", format="localized", pinned=True),
    "status": st.column_config.TextColumn("Status"),
    "device_ms": number("Device ms", help="Median time on the device of one call"),
    "low_ms": number("Low ms", help="Lower end of the 95 % interval of the median"),
    "high_ms": number("High ms", help="Upper end of the 95 % interval of the median"),
    "samples": st.column_config.NumberColumn("Samples"),
    "unused": st.column_config.NumberColumn("Left out", help="Samples kept out of the median; the notes say why"),
    "graph_ms": number("Graph ms", help="One replay of the call captured as a CUDA graph"),
    "wall_ms": number("Wall ms", help="What a caller waits: synchronise, call, synchronise"),
    "host_ms": number("Host ms", help="What the host needs to launch one call"),
    "first_call_s": number("First call s", 3, help="Compilation and set-up; never in the median"),
    "peak_mib": number("Peak MiB", help="The most memory allocated above the inputs"),
    "reserved_mib": number("Reserved MiB", help="What PyTorch's allocator held then, its cache included"),
    "used_mib": number("In use MiB", help="On the whole device, by the driver; of the worker on a CPU"),
    "error": number("Error", 2, help="Relative error of sampled rows against float64"),
    "standard_error": number(
        "Error of standard", 2, help="The same of standard attention in this dtype, on these rows"
    ),
    "tflops": number("TFLOP/s", 3, help="By the exact count of the work, mask included"),
    "dense_tflops": number(
        "TFLOP/s (dense count)", 3, help="As if nothing were masked or padded; above what was computed"
    ),
    "clock_mhz": number("Clock MHz", help="Median of the multiprocessors' clock while the samples ran"),
    "clock_moved": st.column_config.TextColumn("Clock moved", help=f"Changed by more than {CLOCK_SHIFT:.0%} meanwhile"),
    "throttle": st.column_config.TextColumn("Lowered by", help="Reasons that the driver gave for a lower clock"),
    "l2": st.column_config.TextColumn("L2", help="The cache before each sample"),
    "predicted_ms": number("Predicted ms", help="Not measured: what was expected"),
    "predicted_mib": number("Predicted MiB", help="Not measured: what was expected"),
    "provider": st.column_config.TextColumn("What ran", width="medium"),
    "reason": st.column_config.TextColumn("Reason and notes", width="large"),
    "pass": st.column_config.TextColumn("Pass"),
}


def table(run: Run) -> None:
    """Draws the table at the height of the finished run, so that it does not grow while points arrive."""
    alt = f"Every point of the run{', ' + run.mark if run.mark else ''}"
    tables.draw("points", rows(run), CONFIG, alt, min(run.sweep.point_count, ROWS_MAX))
