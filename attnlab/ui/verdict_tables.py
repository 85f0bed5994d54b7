"""Findings as tables: exactness, determinism, numerical edges, what is supported. Verdicts are words, never a colour alone.

Each table stands at the height of a finished run from the start, so that nothing moves while findings arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from attnlab.run import Run
from attnlab.ui import tables
from attnlab.ui.tables import mib, number
from attnlab.verdicts import CONTROL, WORDS, Row, expected, finding, mode_costs, rows

ROWS_MAX = 14
SUPPORT_ROWS = 15


def exactness(runs: Sequence[Run], seq: int) -> None:
    """Every path, dtype and output at a sequence length, and the control."""
    cells = [_exactness_cells(row) for run in runs if seq in run.sweep.seqs for row in rows(run, seq)]
    _draw(
        "exactness",
        cells,
        EXACTNESS,
        runs,
        min(sum(map(expected, runs)), ROWS_MAX),
        f"Every answer at sequence {seq:,}",
    )


def _exactness_cells(row: Row) -> dict[str, Any]:
    v = row.values
    return {
        "path": row.path, "dtype": row.dtype, "what": row.what, "verdict": row.verdict,
        **{name: v.get(name) for name in
           ("relative", "standard_relative", "bound_relative", "max_abs", "standard_max_abs", "bound_max_abs", "nonfinite")},
        "compared": f"{v['compared']:,} of {v['of']:,}" if "compared" in v else "",
        "text": row.text or ("a wrong scale, which must not pass" if row.what.startswith(CONTROL) else ""),
    }  # fmt: skip


def determinism(run: Run) -> None:
    """Every path, mode and output: how many repeats were equal, how far apart the others are, what the mode costs."""
    seq = run.sweep.seqs[-1]
    cells = []
    for row in rows(run, seq):
        v, first = row.values, "device_ms" in row.values
        costs = mode_costs(run, row.path, seq) if first and row.mode == "deterministic" else (None, None)
        cells.append(
            {"path": row.path, "mode": row.mode, "what": row.what, "verdict": row.verdict,
             "identical": f"{v['identical']} of {v['repeats']}" if "identical" in v else "",
             "spread": v.get("spread_max_abs"), "device_ms": v.get("device_ms"), "times_time": costs[0],
             "peak_mib": mib(v.get("peak_bytes")), "times_memory": costs[1], "text": row.text}
        )  # fmt: skip
    height = min(expected(run), ROWS_MAX)
    _draw("determinism", cells, DETERMINISM, [run], height, f"Ten repeats of each path at sequence {seq:,}")


def edge(run: Run, name: str) -> None:
    """Each path's answer at one numerical edge, beside the right one."""
    seq = run.sweep.seqs[-1]
    cells = [
        {"path": row.path, "verdict": row.verdict,
         **{key: row.values.get(key) for key in ("got", "right", "max_abs", "allowed")}, "text": row.text}
        for row in rows(run, seq) if row.what in (name, "all")
    ]  # fmt: skip
    _draw("edge", cells, EDGE, [run], len(run.sweep.paths), f"Each path's answer: {name}")


def support(run: Run) -> None:
    """Features × paths, and below it the reasons for what is not ✓."""
    seq, paths = run.sweep.seqs[-1], run.sweep.paths
    found = {path: rows(run, seq) for path in paths}
    features = list(dict.fromkeys(row.what for listed in found.values() for row in listed if row.values is not None))
    named = [name for name in features if name != "all"]
    signs = {
        path: [_sign(run, path, seq, name, found[path]) for name in named] or [found[path][0].verdict] for path in paths
    }
    names = named or ["not tried yet"]
    matrix = [{"feature": name, **{path: signs[path][i] for path in paths}} for i, name in enumerate(names)]
    config = {"feature": st.column_config.TextColumn("Feature", pinned=True, width=230)}
    config |= {path: st.column_config.TextColumn(path, width="small") for path in paths}
    mark = f", {run.mark}" if run.mark else ""
    tables.draw("x_support", matrix, config, f"What each path supports: feature by path{mark}", SUPPORT_ROWS)
    st.caption("Why not, where the sign is ✗ or –")
    reasons = [
        {"what": row.what, "path": row.path, "verdict": row.verdict, "text": row.text}
        for path in paths for row in found[path] if row.verdict != WORDS["pass"] and row.text
    ]  # fmt: skip
    _draw("reasons", reasons, REASONS, [run], 8, "Why a path does not support a feature")


def _sign(run: Run, path: str, seq: int, feature: str, listed: list[Row]) -> str:
    m = finding(run, path, seq, feature)
    if m is None:
        return listed[0].verdict if listed and listed[0].what == "all" else ""
    return {"pass": "✓", "fail": "✗ wrong answer", "unsupported": "–"}[m.verdict]


def _draw(
    key: str, cells: list[dict[str, Any]], config: dict[str, Any], runs: Sequence[Run], height_rows: int, alt: str
) -> None:
    marks = "".join(f", {mark}" for mark in dict.fromkeys(run.mark for run in runs if run.mark))
    tables.draw(f"x_{key}", cells, config, alt + marks, height_rows)


def error(label: str, help: str | None = None) -> Any:
    return st.column_config.NumberColumn(label, format="%.1e", help=help)


def text(label: str, width: Any = None, **more: Any) -> Any:
    return st.column_config.TextColumn(label, width=width, **more)
PATH = text("Path", 115, pinned=True)
EXACTNESS = {
    "path": PATH,
    "dtype": text("Dtype", 90),
    "what": text("Output", 150),
    "verdict": text("Verdict", 120),
    "relative": error("Relative", "‖path - truth‖ ÷ ‖truth‖, Frobenius"),
    "standard_relative": error("Standard has", "Relative error of standard attention in this dtype"),
    "bound_relative": error("Allowed", "2 × standard + 1e-5, relative"),
    "max_abs": error("Max abs", "Largest absolute distance from float64"),
    "standard_max_abs": error("Standard has", "Largest absolute distance of standard attention in this dtype"),
    "bound_max_abs": error("Allowed", "2 × standard + 1e-5 + the spacing of the dtype at the largest number, absolute"),
    "nonfinite": st.column_config.NumberColumn("Not finite", help="Numbers that are NaN or infinite: none may be"),
    "compared": text("Compared", help="Numbers compared, of all numbers of that output"),
    "text": text("First bad index, or why there is no number", "large"),
}
DETERMINISM = {
    "path": PATH,
    "mode": text("Mode", 105),
    "what": text("Output", 70),
    "verdict": text("Verdict", 95),
    "identical": text("Bit-identical", help="Repeats that were equal to the first call, bit for bit"),
    "spread": number("Largest spread", 2, "Largest distance of a repeat from the first call"),
    "device_ms": number("Device ms", 3, "Median time of one call in this mode, forward and backward"),
    "times_time": st.column_config.NumberColumn("× default time", format="%.2f×"),
    "peak_mib": number("Peak MiB", 3, "The most memory one call allocates above the inputs"),
    "times_memory": st.column_config.NumberColumn("× default memory", format="%.2f×"),
    "text": text("Why", "large"),
}
EDGE = {
    "path": PATH,
    "verdict": text("Verdict", 130),
    "got": number("Answer", 5, "The number that is furthest off"),
    "right": number("Right answer", 5, "The same number in float64"),
    "max_abs": number("Distance", 2),
    "allowed": number("Allowed", 2),
    "text": text("What is wrong, or why it was not tried", "large"),
}
REASONS = {"what": text("Feature", 230, pinned=True), "path": text("Path", 130), "verdict": text("Verdict", 130),
           "text": text("Reason", "large")}  # fmt: skip
