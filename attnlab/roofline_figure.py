"""Roofs and measured points → two charts: the roofline, and time over sequence length beside its floors.

As in attnlab.chart_style a chart is a plain Plotly dict with colours as tokens. A point above the roof stands where it is,
as a hollow warning with its share in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, log10

from attnlab.chart_parts import visible
from attnlab.chart_style import (
    AXIS,
    LEGEND_ROW_PX,
    LINE_PX,
    MARKER_PX,
    PATH_SYMBOLS,
    SYMBOLS,
    TEXT_PX,
    Figure,
    Layout,
    Trace,
    annotate,
    color,
    decades,
    frame,
    seq_text,
)
from attnlab.estimate import DATA_SHEET, KEEPS_SCORES, MEASURED, Roof, Standing, estimate, intensity
from attnlab.problem import AttentionProblem
from attnlab.units import ms, percent

ROOM = (1.2, 1.3)  # below and above what is drawn
ARM = 8  # so many times lower than the ridge the axis begins at least, for the words beside the sloping arm of the roof
MADE_FOR_PX = 640  # half of the page
LEGEND_ENTRIES_A_ROW = 2
FLOORS = (("standard", "standard"), ("flash", "flash"))  # (path, whose colour)


def roofline(
    roofs: Sequence[Roof], standings: Sequence[Standing], problems: Sequence[AttentionProblem], mark: str
) -> Figure:
    """Achieved TFLOP/s against FLOP per byte, log-log, under the roofs; `problems` give it a width without points."""
    paths = list(dict.fromkeys(s.measurement.path for s in standings))
    xs = [s.flop_per_byte for s in standings]
    xs += [intensity(problem, path) for problem in problems for path, _ in FLOORS]
    low_x, high_x = decades([*xs, *(x for roof in roofs for x in (roof.ridge / ARM, roof.ridge))], *ROOM)
    heights = [s.tflops for s in standings] + [roof.peak_tflops for roof in roofs]
    heights += [roof.tflops_at(x) for roof in roofs for x in (min(xs),)] if xs else []
    low_y, high_y = decades(heights or [1, 100], *ROOM)[0], 6 * max(heights or [100])  # room for the words above the roof
    data = [_roof_line(roof, low_x, high_x) for roof in roofs]
    data += [_points(path, [s for s in standings if s.measurement.path == path]) for path in paths]
    data += [_flags(path, [s for s in standings if s.measurement.path == path and s.impossible]) for path in paths]
    for trace in data[len(roofs) :]:
        trace["visible"] = visible(trace["legendgroup"], paths, bool(mark))
    layout = _layout("Roofline", "TFLOP/s reached", len(paths), f"FLOP per byte moved{_marked(mark)}")
    layout["uirevision"] = f"{low_x} {high_x}"
    layout["xaxis"] |= {"range": [log10(low_x), log10(high_x)], "tickvals": _powers(low_x, high_x), "tickformat": ",~r"}
    layout["yaxis"] |= {"range": [log10(low_y), log10(high_y)], "tickvals": _powers(low_y, high_y), "tickformat": ",~r"}
    if roofs:
        _name_roofs(layout, roofs, low_x, high_x)
    if not roofs:
        annotate(layout, "no roof is known here: give two numbers on the left", {"y": 0.9})
    elif not standings:
        annotate(layout, "no measured point: run a sweep on the live page", {"x": 0.98, "xanchor": "right", "y": 0.05})
    return {"data": data, "layout": layout}


def floors(roof: Roof | None, standings: Sequence[Standing], problems: Sequence[AttentionProblem], mark: str) -> Figure:
    """Milliseconds against sequence length, log-log: what was measured, and as dashed lines what the roof allows."""
    paths = list(dict.fromkeys(s.measurement.path for s in standings))
    seqs = [problem.seq_kv for problem in problems]
    lines = {path: [estimate(problem, path, roof).ms for problem in problems] for path, _ in FLOORS} if roof else {}
    data = [_floor_line(path, owner, seqs, lines[path]) for path, owner in FLOORS if roof]
    measured = [_times(path, [s for s in standings if s.measurement.path == path]) for path in paths]
    data += [trace | {"visible": visible(trace["legendgroup"], paths, bool(mark))} for trace in measured]
    heights = [y for line in lines.values() for y in line] + [s.measurement.device_ms for s in standings]
    low_y, high_y = decades(heights or [0.01, 100], *ROOM)
    layout = _layout("Time and its floor", "ms", 2, f"sequence length{_marked(mark)}")
    step = (seqs[-1] / seqs[0]) ** (1 / max(1, len(seqs) - 1)) or 2
    step = step if step > 1 else 2
    every = ceil(len(seqs) / 8)
    layout["uirevision"] = ",".join(map(str, seqs))
    layout["xaxis"] |= {
        "range": [log10(seqs[0] / step**0.4), log10(seqs[-1] * step**0.4)],
        "tickvals": seqs,
        "ticktext": [seq_text(s) if (len(seqs) - 1 - i) % every == 0 else "" for i, s in enumerate(seqs)],
    }
    layout["yaxis"] |= {"range": [log10(low_y), log10(high_y)], "tickvals": _powers(low_y, high_y), "tickformat": ",~r"}
    if roof is None:
        annotate(layout, "no roof, no floor", {"y": 0.9})
    return {"data": data, "layout": layout}


def _roof_line(roof: Roof, low_x: float, high_x: float) -> Trace:
    xs = [low_x, min(max(roof.ridge, low_x), high_x), high_x]
    dash, width = ("solid", LINE_PX) if roof.source != MEASURED else ("dash", LINE_PX / 2)
    shade = "var(--attn-text)" if roof.source != MEASURED else "var(--attn-quiet)"
    return {
        "type": "scatter", "uid": f"roof-{roof.source}", "name": roof.source, "showlegend": False, "mode": "lines",
        "x": xs, "y": [roof.tflops_at(x) for x in xs], "line": {"color": shade, "width": width, "dash": dash},
        "hoverinfo": "text", "hovertext": [escape(roof.words)] * 3,
    }  # fmt: skip


def _name_roofs(layout: Layout, roofs: Sequence[Roof], low_x: float, high_x: float) -> None:
    """The limits in words, above the arms of the first roof."""
    words = {DATA_SHEET: "dense peak, data sheet", MEASURED: "dense product, measured"}
    lines = [
        f"{words.get(roof.source, 'dense peak, given')}: {_limit(roof, roof.peak_tflops)} TFLOP/s" for roof in roofs
    ]
    if len(roofs) > 1:
        lines[1] = f"dashed: {lines[1]}"
    top = {"x": 1, "xanchor": "right", "yref": "y", "y": log10(roofs[0].peak_tflops), "yanchor": "bottom"}
    annotate(layout, "<br>".join(reversed(lines)), {**top, "align": "right"})
    roof = roofs[0]
    at = (low_x * min(max(roof.ridge, low_x), high_x)) ** 0.5
    left = {"xref": "x", "x": log10(at), "xanchor": "right", "yref": "y", "y": log10(roof.tflops_at(at))}
    annotate(layout, f"{_limit(roof, roof.bandwidth_tbs)} TB/s", {**left, "yanchor": "bottom"})


def _limit(roof: Roof, value: float) -> str:
    return f"{value:,.3g}" if roof.source == MEASURED else f"{value:,.10g}"


def _points(path: str, standings: Sequence[Standing]) -> Trace:
    return _curve(path) | {
        "uid": f"{path}-points",
        "x": [s.flop_per_byte for s in standings],
        "y": [s.tflops for s in standings],
        "hovertext": [_hover(s) for s in standings],
        "line": {"width": 1.5, "color": color(path), "dash": "dot"},
    }


def _flags(path: str, standings: Sequence[Standing]) -> Trace:
    """Those above the roof, each with its share."""
    return {
        "type": "scatter", "uid": f"{path}-above", "legendgroup": path, "showlegend": False, "mode": "markers+text",
        "x": [s.flop_per_byte for s in standings] or [None], "y": [s.tflops for s in standings] or [None],
        "text": [percent(s.share) for s in standings] or [""], "textposition": "top center",
        "textfont": {"size": TEXT_PX, "color": color(path)}, "hoverinfo": "text",
        "hovertext": [_hover(s) for s in standings] or [""],
        "marker": {"size": MARKER_PX + 8, "symbol": SYMBOLS["suspect"], "color": color(path)}, "cliponaxis": False,
    }  # fmt: skip


def _times(path: str, standings: Sequence[Standing]) -> Trace:
    return _curve(path) | {
        "uid": f"{path}-times",
        "showlegend": False,  # the chart beside it has one
        "x": [s.measurement.seq for s in standings],
        "y": [s.measurement.device_ms for s in standings],
        "hovertext": [_hover(s) for s in standings],
        "line": {"width": LINE_PX, "color": color(path)},
    }


def _curve(path: str) -> Trace:
    return {
        "type": "scatter", "name": escape(path), "legendgroup": path, "meta": path, "mode": "lines+markers",
        "hoverinfo": "text", "marker": {"size": MARKER_PX, "color": color(path), "symbol": PATH_SYMBOLS.get(path, "circle")},
    }  # fmt: skip


def _floor_line(path: str, owner: str, seqs: Sequence[int], values: Sequence[float]) -> Trace:
    return {
        "type": "scatter", "uid": f"{path}-floor", "name": f"floor of {path}", "legendgroup": f"floor of {path}",
        "mode": "lines", "x": list(seqs), "y": list(values), "hoverinfo": "text",
        "line": {"width": LINE_PX - 1, "color": color(owner), "dash": "dash"},
        "hovertext": [f"floor of {path} at {seq:,}: {ms(value)}" for seq, value in zip(seqs, values, strict=True)],
    }  # fmt: skip


def _hover(s: Standing) -> str:
    m = s.measurement
    lines = [
        f"<b>{escape(m.path)}</b> at {m.seq:,}: {ms(m.device_ms)}",
        f"{s.tflops:,.3g} TFLOP/s at {s.flop_per_byte:,.3g} FLOP per byte",
        f"floor {ms(s.floor.ms)}, {s.floor.bound}-bound: {percent(s.share)} reached",
    ]
    flag = ["above the roof: impossible, or the data came out of a cache"] if s.impossible else []
    scores = ["bytes counted: every step over the scores"] if m.path in KEEPS_SCORES else []
    return "<br>".join([*lines, *flag, *scores, *([escape(m.provider)] if m.provider else [])])


def _layout(title: str, subtitle: str, entries: int, x_title: str) -> Layout:
    axis = AXIS | {"type": "log"}
    return frame(title, subtitle, 10 + LEGEND_ROW_PX * ceil(max(1, entries) / LEGEND_ENTRIES_A_ROW)) | {
        "meta": {"made_for_px": MADE_FOR_PX},
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom", "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)", "entrywidthmode": "fraction", "entrywidth": 0.96 / LEGEND_ENTRIES_A_ROW,
            "tracegroupgap": 0,
        },
        "xaxis": axis | {"title": {"text": x_title, "font": {"size": TEXT_PX}}, "tickangle": 0},
        "yaxis": dict(axis),
    }  # fmt: skip


def _marked(mark: str) -> str:
    return f" · {escape(mark)}" if mark else ""


def _powers(low: float, high: float) -> list[float]:
    return [10.0**n for n in range(round(log10(low)), round(log10(high)) + 1)]
