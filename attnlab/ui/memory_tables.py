"""Tables of the memory page: parts by path and purpose, predictions against measured peaks, and shares of several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from attnlab import budget, memory_plan, units
from attnlab.memory_figure import Checked
from attnlab.problem import AttentionProblem, ProblemError
from attnlab.ui import tables
from attnlab.ui.tables import mib, number

CHECKED_ROWS = 9


def parts(problem: AttentionProblem, capacity_bytes: int, device_kind: str) -> None:
    """A row for each part, a column for each path in inference and in training; below them the total and what fits."""
    columns = [(path, purpose) for purpose in memory_plan.PURPOSES for path in memory_plan.PATHS]
    names, found = memory_plan.table(
        problem, [(path, memory_plan.PURPOSES[purpose]) for path, purpose in columns], device_kind
    )
    totals = [sum(column.values()) for column in found]
    longest = [
        memory_plan.longest_seq(
            replace(problem, direction=memory_plan.PURPOSES[purpose]), path, capacity_bytes, device_kind
        )
        for path, purpose in columns
    ]
    rows = [[name, *(units.size(column[name]) if name in column else "" for column in found)] for name in names]
    rows.insert(0, ["Longest sequence that fits", *map(memory_plan.longest_words, longest)])
    rows.insert(1, ["All together", *map(units.size, totals)])
    labels = ["Part", *(f"{path}, {purpose}" for path, purpose in columns)]
    _draw("m_parts", labels, rows, len(rows), f"What each path needs at sequence {units.sequence(problem.seq_kv)}")


def checked(points: Sequence[Checked], mark: str) -> None:
    """Predicted and measured peaks, longest sequences first."""
    rows = [
        {
            "path": point.measurement.path,
            "seq": point.measurement.seq,
            "predicted": mib(point.predicted_bytes),
            "measured": mib(point.measurement.peak_bytes),
            "deviation": round(point.deviation, 4) + 0.0,  # no "-0%"
            "ran": point.measurement.provider,
        }
        for point in sorted(points, key=lambda point: -point.measurement.seq)
    ]
    alt = f"Predicted and measured peak memory{', ' + mark if mark else ''}"
    tables.draw("m_checked", rows, CHECKED, alt, CHECKED_ROWS)


def shares(problem: AttentionProblem, asked: int, capacity_bytes: int, cache: budget.KVCache | None) -> None:
    """A row for each number of devices, that which is `asked` among them; where heads do not divide, why."""
    labels = ["Devices", "Heads", "KV heads", "Note", "Standard needs", "Flash needs", "GFLOP", "Standard up to",
              "Flash up to", "KV cache"]  # fmt: skip
    rows: list[list[str]] = []
    for devices in sorted({*budget.DEVICES, asked}):
        try:
            share = budget.split(problem, devices)
        except ProblemError as error:
            rows.append([str(devices), "", "", str(error), *[""] * (len(labels) - 4)])
            continue
        local = share.problem
        totals = [units.size(memory_plan.total_bytes(local, path)) for path in memory_plan.PATHS]
        longest = [memory_plan.longest_seq(local, path, capacity_bytes) for path in memory_plan.PATHS]
        cached = ""
        if cache is not None:
            cached = units.size(cache.paged_bytes * local.kv_heads // problem.kv_heads)
        rows.append([str(devices), str(local.heads), str(local.kv_heads), share.note, *totals,
                     f"{share.flops / 1e9:,.0f}", *map(memory_plan.longest_words, longest), cached])  # fmt: skip
    _draw("m_shares", labels, rows, len(rows), "What each of 1, 2, 4 and 8 devices holds and computes")


def _draw(key: str, labels: Sequence[str], rows: Sequence[Sequence[str]], height_rows: int, alt: str) -> None:
    first = st.column_config.TextColumn(labels[0], pinned=True, width=270 if labels[0] == "Part" else 90)
    config: dict[str, Any] = {labels[0]: first, **{label: st.column_config.TextColumn(label) for label in labels[1:]}}
    tables.draw(key, [dict(zip(labels, row, strict=True)) for row in rows], config, alt, height_rows)


CHECKED = {
    "path": st.column_config.TextColumn("Path", pinned=True, width=125),
    "seq": st.column_config.NumberColumn("Sequence", pinned=True, format="localized"),
    "predicted": number("Predicted MiB", help="The buffers that must stand at once, above the inputs"),
    "measured": number("Measured MiB", help="The most memory one call allocated above the inputs"),
    "deviation": st.column_config.NumberColumn("Deviation", format="percent", help="Predicted over measured, less one"),
    "ran": st.column_config.TextColumn("What ran", width="large"),
}
