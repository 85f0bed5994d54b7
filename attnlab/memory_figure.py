"""What fits → one chart: memory needed in all against sequence length, the capacity as a line, measured points over it.

As in attnlab.chart_style a chart is a plain Plotly dict with colours as tokens. A measured point is the peak that was
measured above the inputs, on top of the inputs that are counted, so that it can be read on the same axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10

from attnlab import cost, memory_plan
from attnlab.chart_style import (
    AXIS,
    LEGEND_ROW_PX,
    LINE_PX,
    MARKER_PX,
    PATH_SYMBOLS,
    TEXT_PX,
    Figure,
    Trace,
    annotate,
    color,
    frame,
    seq_text,
)
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.units import percent, sequence, size

MADE_FOR_PX = 1150  # as wide as the page


@dataclass(frozen=True)
class Checked:
    """A measured peak beside the predicted one, bytes above the inputs."""

    measurement: Measurement
    predicted_bytes: int

    @property
    def deviation(self) -> float:
        """Of the prediction from what was measured: 0.02 is 2 % too high."""
        return self.predicted_bytes / self.measurement.peak_bytes - 1

    @property
    def total_bytes(self) -> int:
        """With what stood in memory before the call, as counted for the prediction."""
        m = self.measurement
        return m.peak_bytes + memory_plan.total_bytes(m.problem, m.path) - cost.predicted_peak_bytes(m.problem, m.path)


def checked(measurements: Sequence[Measurement], device_kind: str) -> list[Checked]:
    """Those that have a measured peak."""
    return [
        Checked(m, cost.predicted_peak_bytes(m.problem, m.path, device_kind))
        for m in measurements
        if m.ok and m.peak_bytes
    ]


def deviation_sentence(points: Sequence[Checked]) -> str:
    """How far the predictions lie from what was measured, for each path that the page speaks of."""
    if not points:
        return "Nothing is measured yet: run a sweep on the live page."
    said = []
    for path in dict.fromkeys(point.measurement.path for point in points):
        worst = max((p for p in points if p.measurement.path == path), key=lambda p: abs(p.deviation))
        at = sequence(worst.measurement.seq)
        said.append(f"{path} {percent(worst.deviation)} at {at}" if abs(worst.deviation) >= 0.0005 else f"{path} exact")
    return f"Furthest off, for each path: {'; '.join(said)}."


def figure(
    problem: AttentionProblem,
    seqs: Sequence[int],
    capacity_bytes: int,
    capacity_words: str,
    points: Sequence[Checked] = (),
    device_kind: str = "cuda",
    mark: str = "",
) -> Figure:
    """Log-log; `points` are drawn where they are given, so the caller leaves out those of another shape."""
    curves = {
        path: [memory_plan.total_bytes(problem.at_seq(seq), path, device_kind) for seq in seqs]
        for path in memory_plan.PATHS
    }
    data = [_curve(path, seqs, values) for path, values in curves.items()]
    paths = list(dict.fromkeys(point.measurement.path for point in points))
    data += [_measured(path, [p for p in points if p.measurement.path == path], mark) for path in paths]
    layout = frame("Memory needed", "inputs, outputs and all between", 10 + LEGEND_ROW_PX * (1 + len(paths) // 4))
    everything = [y for values in curves.values() for y in values] + [capacity_bytes]
    low, high = min(everything) / 2, max(everything) * 3
    ticks = [1 << i for i in range(0, 70, 4)]
    title = f"sequence length{' · ' + escape(mark) if mark and points else ''}"
    layout |= {
        "meta": {"made_for_px": MADE_FOR_PX},
        "uirevision": f"{problem} {seqs[-1]}",
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom", "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)", "tracegroupgap": 0,
        },
        "xaxis": AXIS | {
            "type": "log", "range": [log10(seqs[0] / 1.2), log10(seqs[-1] * 1.2)], "tickvals": list(seqs), "tickangle": 0,
            "ticktext": [seq_text(seq) for seq in seqs], "title": {"text": title, "font": {"size": TEXT_PX}},
        },
        "yaxis": AXIS | {
            "type": "log", "range": [log10(low), log10(high)], "tickvals": ticks, "ticktext": [size(t) for t in ticks],
        },
    }  # fmt: skip
    line = {"color": "var(--attn-text)", "width": 2, "dash": "dash"}
    layout["shapes"].append(
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": capacity_bytes, "y1": capacity_bytes, "line": line}
    )
    left = {"x": 0.005, "xanchor": "left", "yref": "y", "y": log10(capacity_bytes), "yanchor": "bottom"}
    annotate(layout, escape(capacity_words), left)
    for path in memory_plan.PATHS:
        longest = memory_plan.longest_seq(problem, path, capacity_bytes, device_kind)
        if longest and seqs[0] <= longest <= seqs[-1]:
            at = {"xref": "x", "x": log10(longest), "yref": "y", "y": log10(capacity_bytes), "yanchor": "top"}
            layout["annotations"].append(
                {**at, "xanchor": "left", "text": f"<b>{sequence(longest)}</b>", "showarrow": False,
                 "font": {"size": TEXT_PX + 2, "color": color(path)}}
            )  # fmt: skip
    return {"data": data, "layout": layout}


def _curve(path: str, seqs: Sequence[int], values: Sequence[int]) -> Trace:
    return {
        "type": "scatter", "uid": f"{path}-plan", "name": f"{path}, predicted", "legendgroup": path, "mode": "lines",
        "x": list(seqs), "y": list(values), "line": {"width": LINE_PX, "color": color(path)}, "hoverinfo": "text",
        "hovertext": [f"{path} at {seq:,} needs {size(value)}" for seq, value in zip(seqs, values, strict=True)],
    }  # fmt: skip


def _measured(path: str, points: Sequence[Checked], mark: str) -> Trace:
    hover = [
        f"<b>{escape(path)}</b> at {p.measurement.seq:,}: adds {size(p.measurement.peak_bytes)}, predicted"
        f" {size(p.predicted_bytes)} ({percent(p.deviation)} off)" + (f"<br>{escape(mark)}" if mark else "")
        for p in points
    ]
    return {
        "type": "scatter", "uid": f"{path}-measured", "name": f"{escape(path)}, measured", "meta": path, "mode": "markers",
        "x": [p.measurement.seq for p in points], "y": [p.total_bytes for p in points], "hoverinfo": "text",
        "hovertext": hover,
        "marker": {"size": MARKER_PX + 2, "color": color(path), "symbol": PATH_SYMBOLS.get(path, "circle"),
                   "line": {"width": 2, "color": "var(--attn-page)"}},
        "visible": True if path in memory_plan.PATHS else "legendonly",
    }  # fmt: skip
