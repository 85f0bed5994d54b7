"""Exactness runs → one chart: error against the truth over sequence length, one run for each dtype.

As in attnlab.chart_style a chart is a plain Plotly dict with colours as tokens; as in attnlab.chart_parts each path owns the
same traces from the first moment on, and only what is a number is joined by a line. An answer that FAILs is a cross that no
line touches; one that is not finite has no height and stands at the upper edge, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from attnlab.chart_style import (
    AXIS,
    EDGE_AXIS,
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
from attnlab.finding import Finding
from attnlab.problem import DTYPE_BYTES
from attnlab.run import Run
from attnlab.verdicts import STANDARD, finding, number, shape

MEASURES = {"relative": "relative error, Frobenius", "max_abs": "largest absolute error"}
DASHES = dict(zip(DTYPE_BYTES, ("solid", "dash", "dot"), strict=True))
# Unit roundoff, half the spacing of the numbers at 1: 2^-p for a significand of p bits, the hidden one counted (IEEE 754;
# bfloat16 has 8). To round the right answer once costs at most that, relative to each number.
ROUNDOFF_POWER = {"bfloat16": -8, "float16": -11, "float32": -24}
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LEGEND_ENTRIES_A_ROW = 5
GUTTER = 0.28  # of the curves' width, to their right, where the roundoff lines are named
MADE_FOR_PX = 950  # as wide as the page, where the other charts stand three in a row


def figure(runs: Sequence[Run], output: str = "O", measure: str = "relative") -> Figure:
    """The error of `output` by one of MEASURES, log-log. `runs` are of one shape, one for each dtype; at least one."""
    seqs = sorted({seq for run in runs for seq in run.sweep.seqs})
    paths = list(dict.fromkeys(path for run in runs for path in run.sweep.paths))
    dtypes = [run.sweep.problem.dtype for run in runs]
    data: list[Trace] = []
    heights = [2.0 ** ROUNDOFF_POWER[dtype] for dtype in dtypes]
    for row, path in enumerate(paths):
        drawn = [run for run in runs if path in run.sweep.paths]
        for run in drawn:
            curve, failed, not_finite = _traces(run, path, output, measure, 0.97 - 0.03 * row)
            # The first paths lie on top; standard, whose marker is the largest, below where all are equal.
            curve |= {"showlegend": run is drawn[0], "zorder": 0 if path == STANDARD else len(paths) - row}
            data += [curve, failed, not_finite]
            heights += [y for trace in (curve, failed) for y in trace["y"] if y]
    data += [_dash_sample(dtype) for dtype in dtypes] if len(dtypes) > 1 else []
    entries = len(paths) + (len(dtypes) if len(dtypes) > 1 else 0)
    subtitle = f"{MEASURES[measure]}, against float64 · {shape(runs[0])}" + f", {dtypes[0]}" * (len(dtypes) == 1)
    layout = frame(f"Error of {output}", subtitle, 10 + LEGEND_ROW_PX * ceil(entries / LEGEND_ENTRIES_A_ROW))
    low, high = 10.0 ** floor(log10(min(heights) / 1.2)), 10.0 ** ceil(log10(max(heights) * 2))
    if any(trace["y"] != [None] for trace in data if trace.get("yaxis") == "y2"):
        high *= 10  # room for what stands at the upper edge
    first, last = log10(seqs[0] / 1.3), log10(seqs[-1] * 1.3)
    marks = dict.fromkeys(run.mark for run in runs if run.mark)
    title = " · ".join(["sequence length", *map(escape, marks)])
    layout |= {
        "meta": {"made_for_px": MADE_FOR_PX},
        "uirevision": f"{','.join(map(str, seqs))} {output} {measure}",
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom", "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)", "entrywidthmode": "fraction", "entrywidth": 1 / LEGEND_ENTRIES_A_ROW - 0.01,
        },
        "xaxis": AXIS | {
            "type": "log", "range": [first, last + GUTTER * (last - first)], "tickvals": list(seqs),
            "ticktext": [seq_text(seq) for seq in seqs], "tickangle": 0, "title": {"text": title, "font": {"size": TEXT_PX}},
        },
        "yaxis": AXIS | {
            "type": "log", "range": [log10(low), log10(high)],
            "dtick": 1 if high / low < 1e5 else 2, "exponentformat": "power",
        },
        "yaxis2": dict(EDGE_AXIS),
    }  # fmt: skip
    for dtype in dtypes:
        _roundoff_line(layout, dtype)
    if not any(run.measurements for run in runs):
        annotate(layout, "waiting for the first point" if any(run.active for run in runs) else "not measured")
    return {"data": data, "layout": layout}


def _traces(run: Run, path: str, output: str, measure: str, edge_height: float) -> tuple[Trace, Trace, Trace]:
    """(the line through what passed, crosses for what failed, crosses at the upper edge for what is not finite)."""
    dtype, accent = run.sweep.problem.dtype, color(path)
    found = {seq: finding(run, path, seq, output) for seq in run.sweep.seqs}
    heights = {seq: f.values.get(measure) for seq, f in found.items() if f}
    passed = {seq: f for seq, f in found.items() if f and f.verdict == "pass" and (heights[seq] or 0) > 0}
    failed = [seq for seq, f in found.items() if f and f.failed and (heights[seq] or 0) > 0]
    lost = [seq for seq, f in found.items() if f and f.failed and heights[seq] is None]
    common = {
        "type": "scatter", "meta": path, "legendgroup": path, "name": escape(path), "hoverinfo": "text", "showlegend": False,
    }  # fmt: skip

    def hover(seqs: Sequence[int]) -> list[str]:
        return [_hover(run, path, seq, output, found[seq]) for seq in seqs]

    curve = common | {
        "uid": f"{path}-{dtype}-line",
        "x": list(run.sweep.seqs),
        "y": [heights[seq] if seq in passed else None for seq in run.sweep.seqs],
        "hovertext": [_hover(run, path, seq, output, f) if f else "" for seq, f in found.items()],
        "mode": "lines+markers",
        "line": {"width": LINE_PX, "color": accent, "dash": DASHES[dtype]},
        "marker": {"size": MARKER_PX, "color": accent, "symbol": PATH_SYMBOLS.get(path, "circle")},
        "connectgaps": False,
    }
    cross = {"mode": "markers+text", "textfont": {"size": TEXT_PX, "color": accent}, "cliponaxis": False,
             "marker": {"size": MARKER_PX + 4, "symbol": "x", "color": accent}}  # fmt: skip
    crosses = common | cross | {
        "uid": f"{path}-{dtype}-fail", "x": failed or [None], "y": [heights[seq] for seq in failed] or [None],
        "hovertext": hover(failed) or [""], "text": ["  FAIL"] * len(failed) or [""], "textposition": "middle right",
    }  # fmt: skip
    at_edge = common | cross | {
        "uid": f"{path}-{dtype}-nonfinite", "x": lost or [None], "y": [edge_height] * len(lost) or [None], "yaxis": "y2",
        "hovertext": hover(lost) or [""], "text": ["  FAIL: not finite"] * len(lost) or [""],
        "textposition": ["middle left" if seq == run.sweep.seqs[-1] else "middle right" for seq in lost] or "middle right",
    }  # fmt: skip
    return curve, crosses, at_edge


def _hover(run: Run, path: str, seq: int, output: str, found: Finding) -> str:
    v, m = found.values, run.get(path, seq)
    lines = [
        f"<b>{escape(path)}</b> {run.sweep.problem.dtype}, {output} at {seq:,}: {found.verdict.upper()}",
        *(
            f"{words} {number(v.get(name))}, standard {number(v.get('standard_' + name))},"
            f" allowed {number(v.get('bound_' + name))}"
            for name, words in (("relative", "relative"), ("max_abs", "max abs"))
        ),
    ]
    return "<br>".join(lines + [escape(text) for text in (found.text, m.provider if m else "", run.mark) if text])


def _dash_sample(dtype: str) -> Trace:
    """A legend entry that says how the lines of a dtype are drawn."""
    line = {"width": LINE_PX - 1, "color": "var(--attn-quiet)", "dash": DASHES[dtype]}
    return {"type": "scatter", "uid": f"{dtype}-dash", "name": dtype, "legendgroup": f"dtype {dtype}", "mode": "lines",
            "x": [None], "y": [None], "line": line, "showlegend": True, "hoverinfo": "skip"}  # fmt: skip


def _roundoff_line(layout: dict, dtype: str) -> None:
    power = ROUNDOFF_POWER[dtype]
    line = {"color": "var(--attn-quiet)", "width": 1.5, "dash": DASHES[dtype]}
    layout["shapes"].append(
        {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": 2.0**power,
            "y1": 2.0**power,
            "line": line,
            "layer": "below",
        }
    )
    text = f"{dtype} unit roundoff 2{str(power).translate(SUPERSCRIPT)}"
    place = {"x": 1, "xanchor": "right", "yref": "y", "y": power * log10(2), "yanchor": "bottom"}
    annotate(layout, text, place)
