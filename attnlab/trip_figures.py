"""The trip through memory, drawn: bytes and time of each of standard attention's operations, flash beside them.

As in attnlab.chart_style a chart is a plain Plotly dict with colours as tokens. Everything in it is of one problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from attnlab import trip
from attnlab.chart_style import AXIS, TEXT_PX, Figure, Trace, annotate, color, frame
from attnlab.finding import Finding
from attnlab.problem import AttentionProblem
from attnlab.units import ms, times

MADE_FOR_PX = 520
INSIDE = 0.55  # of the longer bar: from there on flash's own words stand in it, there is no room behind


def moved(problem: AttentionProblem) -> Figure:
    """Bytes through device memory, one stacked bar for standard's operations and one for flash."""
    steps, best = trip.operations(problem), trip.flash(problem)
    total = trip.standard_bytes(problem)
    less = times(total / best.moved_bytes)
    unit, factor = ("GB", 1e9) if total >= 1e9 else ("MB", 1e6)
    data = [
        _segment(
            trip.STANDARD, step.name, step.moved_bytes / factor, three_digits(step.moved_bytes / factor), _parts(step)
        )
        for step in steps
    ]
    data.append(_segment(trip.FLASH, trip.KERNEL, best.moved_bytes / factor, "", _parts(best)))
    ends = {
        trip.STANDARD: (total / factor, trip.decimal_size(total)),
        trip.FLASH: (best.moved_bytes / factor, f"{trip.decimal_size(best.moved_bytes)} · {less} less"),
    }
    return {"data": data, "layout": _layout("Through memory", "read + written", unit, ends)}


def timed(
    problem: AttentionProblem,
    standard: Mapping[str, Finding],
    flash: Mapping[str, Finding],
    tbs: float | None,
    where: str,
    missing: str = "",
) -> Figure:
    """Milliseconds of each operation as measured; before that, what its bytes take at `tbs` TB/s, pale and named so.
    `where` is on what, or the mark of a recorded run; `missing` says why standard has no time where flash has one."""
    steps, best = trip.operations(problem), trip.flash(problem)
    measured = bool(standard or flash)
    times_ms = [
        trip.ms_of(standard.get(step.name)) if measured else trip.ms_at(step.moved_bytes, tbs) for step in steps
    ]
    flash_ms = trip.ms_of(flash.get(trip.KERNEL)) if measured else trip.ms_at(best.moved_bytes, tbs)
    pale = not measured
    data = [
        _segment(
            trip.STANDARD,
            step.name,
            value,
            three_digits(value) if value else "",
            _kernels(standard.get(step.name)),
            pale,
        )
        for step, value in zip(steps, times_ms, strict=True)
    ]
    data.append(_segment(trip.FLASH, trip.KERNEL, flash_ms, "", _kernels(flash.get(trip.KERNEL)), pale))
    total = None if None in times_ms else sum(times_ms)
    words = f" · {faster(total / flash_ms)}" if measured and total and flash_ms else ""
    ends = {
        trip.STANDARD: (total, ms(total) if total else missing if measured else ""),
        trip.FLASH: (flash_ms, ms(flash_ms) + words),
    }
    said = f"measured, {where}" if measured else f"not measured: bytes at {trip.rate(tbs)}" if tbs else "not measured"
    layout = _layout("Time" if measured else "Time, at least", escape(said), "ms", ends)
    if total is None and not measured:
        annotate(layout, "press Measure the kernels")
    return {"data": data, "layout": layout}


def three_digits(value: float) -> str:
    """5.1 → "5.10", 291.3 → "291"; the unit is the axis's."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def faster(ratio: float) -> str:
    """ "7.9× faster", "1.1× slower"."""
    return f"{times(ratio)} faster" if ratio >= 1 else f"{times(1 / ratio)} slower"


def _segment(path: str, name: str, value: float | None, words: str, hover: str, pale: bool = False) -> Trace:
    page, text = "var(--attn-page)", "var(--attn-text)"
    return {
        "type": "bar", "orientation": "h", "uid": f"{path}-{name}", "name": escape(name), "x": [value], "y": [path],
        "text": [f"{escape(name)}<br>{words}" if words else ""], "textposition": "inside", "insidetextanchor": "middle",
        "textangle": 0, "textfont": {"size": TEXT_PX, "color": text if pale else page}, "showlegend": False,
        "marker": {"color": color(path), "opacity": 0.4 if pale else 1, "line": {"color": page, "width": 2}},
        "hoverinfo": "text", "hovertext": [f"<b>{escape(path)}, {escape(name)}</b><br>{hover}"],
    }  # fmt: skip


def _parts(step: trip.MemoryStep) -> str:
    return f"reads {trip.decimal_size(step.read_bytes)}, writes {trip.decimal_size(step.write_bytes)}"


def _kernels(finding: Finding | None) -> str:
    return escape(finding.text) if finding else "not measured"


def _layout(title: str, subtitle: str, unit: str, ends: Mapping[str, tuple[float | None, str]]) -> dict:
    most = max((value for value, _ in ends.values() if value), default=1.0)
    layout = frame(title, subtitle)
    layout |= {
        "meta": {"made_for_px": MADE_FOR_PX},
        "uirevision": title,
        "barmode": "stack",
        "bargap": 0.32,
        "uniformtext": {"minsize": 12, "mode": "hide"},
        "xaxis": AXIS | {"range": [0, most * 1.24], "title": {"text": unit, "font": {"size": TEXT_PX}}},
        "yaxis": {"categoryarray": [trip.FLASH, trip.STANDARD], "categoryorder": "array", "automargin": True,
                  "tickfont": {"size": TEXT_PX + 3}, "fixedrange": True},
    }  # fmt: skip
    for path, (value, words) in ends.items():
        if words and (value is not None or path == trip.STANDARD):
            inside = path == trip.FLASH and value > INSIDE * most
            layout["annotations"].append(
                {"x": value or 0, "y": path, "text": f" <b>{words}</b> ", "showarrow": False,
                 "xanchor": "right" if inside else "left",
                 "font": {"size": TEXT_PX + 1, "color": "var(--attn-page)" if inside else color(path)}}
            )  # fmt: skip
    return layout
