"""A chart as a hall sees it: big type, thick lines, each line named at its end, only the paths that are revealed.

`staged` turns a figure of attnlab.figures (or of another page) into that: no legend, labels in the colour of their line
that do not lie on one another, logarithmic or linear. Axes depend on all paths, revealed or not, so that nothing jumps when
one comes. A pure function over a plain Plotly dict; sizes are of a chart that is MADE_FOR_PX wide, and grow with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2, log10
from typing import Any

from attnlab.chart_style import Figure, Layout, Trace, color, seq_text
from attnlab.units import size

MADE_FOR_PX = 900
GROWS_TO = 8.0  # times its size, on a wall of screens
PLOT_PX = 175  # the height of the axes in a chart that is MADE_FOR_PX wide, 16:9: what labels must not share
LINE_PX, MARKER_PX, TEXT_PX, LABEL_PX, SMALL_PX, TITLE_PX = 5.5, 13, 18, 25, 15, 22
BOLD_EM, PLAIN_EM = 0.6, 0.54  # the width of a character
GAP = 0.012  # between a line's end and its label, of the width of the axes
BEYOND = 0.03  # of the height of the axes, above and below: there is room for as much of a label
UNDER = 0.02  # from a point down to the label under it, of their height
TICKS = 5
NEAR = 1.4  # a reference line this much above all points is still shown on a linear axis
LOG, LINEAR = "log", "linear"


def staged(figure: Figure, *, scale: str = "", paths: Sequence[str] | None = None, below: bool = False) -> Figure:
    """`scale` is "log", "linear" or "" for that of the figure; `paths` are revealed, None for all. With `below` labels stand
    lower than the last points, for lines that have others to their right."""
    figure = deepcopy(figure)
    data, layout = figure["data"], figure["layout"]
    named = _named_lines(data)
    revealed = list(named) if paths is None else [path for path in named if path in paths]
    for trace in data:
        _dress(trace, revealed if trace.get("legendgroup") in named else None)
    _frame(layout)
    for axis in ("xaxis", "yaxis"):
        _rescale(layout, axis, [trace for trace in data if trace.get("yaxis", "y") == "y"], scale)
    ends = {path: _end(path, named[path], data, layout) for path in revealed}
    labels = {path: _label_lines(named[path], end.status) for path, end in ends.items() if end}
    layout["margin"] = layout["margin"] | {"t": 40, "b": 6, "r": round(_room(labels) / 2) if below else _room(labels)}
    layout["annotations"] += _labels({path: end for path, end in ends.items() if end}, labels, below)
    layout["uirevision"] = f"{layout.get('uirevision', '')} {scale}"
    return figure


def _named_lines(data: Sequence[Trace]) -> dict[str, Trace]:
    """Path → the trace that its legend entry stood for."""
    found: dict[str, Trace] = {}
    for trace in data:
        path = trace.get("legendgroup")
        if path and "lines" in trace.get("mode", "") and trace.get("showlegend", True) and trace.get("name"):
            found.setdefault(path, trace)
    return found


def _dress(trace: Trace, revealed: Sequence[str] | None) -> None:
    trace["showlegend"] = False
    if revealed is not None:
        trace["visible"] = trace["legendgroup"] in revealed and not str(trace.get("uid", "")).endswith("-growth")
    line, marker = trace.get("line", {}), trace.get("marker", {})
    if line.get("width", 0) >= 3:
        trace["line"] = line | {"width": LINE_PX}
    if marker.get("size", 0) and marker.get("opacity", 1):
        trace["marker"] = marker | {"size": MARKER_PX}
        trace["cliponaxis"] = False
    if "textfont" in trace:
        trace["textfont"] = trace["textfont"] | {"size": TEXT_PX + 2}


def _frame(layout: Layout) -> None:
    layout["meta"] = {"made_for_px": MADE_FOR_PX, "grows_to": GROWS_TO}
    layout["showlegend"] = False
    layout.pop("legend", None)
    layout["font"] = layout["font"] | {"size": TEXT_PX}
    layout["hoverlabel"] = layout["hoverlabel"] | {"font": {"size": TEXT_PX}}
    layout["title"] = layout["title"] | {"font": {"size": TITLE_PX}}
    if "title" in layout.get("xaxis", {}):  # in one line: height is dear
        title = layout["xaxis"]["title"]
        layout["xaxis"] = layout["xaxis"] | {"title": title | {"text": title["text"].replace("<br>", " · ")}}
    for axis in ("xaxis", "yaxis"):
        if "tickfont" in layout.get(axis, {}):
            layout[axis] = layout[axis] | {"tickfont": {"size": TEXT_PX}, "gridwidth": 1.5}
    for annotation in layout["annotations"]:
        said = annotation["text"].startswith((" <b>", "<b>"))  # the figure itself, not a remark
        annotation["font"] = annotation["font"] | {"size": LABEL_PX if said else TEXT_PX}
        if annotation.get("x") == 0 and annotation["xref"] == "paper":
            annotation["x"] = GAP  # not upon the words of the axis
    for shape in layout["shapes"]:
        shape["line"] = shape["line"] | {"width": 3}


def _numbers(traces: Sequence[Trace], letter: str) -> list[float]:
    """What the axis has to hold of all paths; bands, which may be wide at first, have no say."""
    kept = [trace for trace in traces if not str(trace.get("uid", "")).endswith(("-band", "-growth"))]
    return [value for trace in kept for value in trace.get(letter, ()) if type(value) in (int, float) and value > 0]


def _rescale(layout: Layout, axis: str, traces: Sequence[Trace], scale: str) -> None:
    """An explicit range, in the scale that is asked for; what stands at the axis is moved along."""
    old = layout[axis]
    was = old.get("type", LINEAR)
    # A figure that is linear by nature (a ratio) stays so: its logarithm says nothing to a hall.
    now = scale if scale and was == LOG else was
    letter = axis[0]
    values = _numbers(traces, letter)
    included = old.get("autorangeoptions", {}).get("include")
    new = {name: value for name, value in old.items() if name not in ("autorangeoptions", "autorange")}
    if was == now:
        if "range" not in old and included:
            low, high = included
            new["range"] = [log10(low), log10(high)] if now == LOG else [low, 1.06 * high]
        if "range" in old and axis == "xaxis" and "ticktext" in old and now == LOG and len(old["tickvals"]) > 1:
            first, last = old["tickvals"][0], old["tickvals"][-1]
            step = (log10(last) - log10(first)) / (len(old["tickvals"]) - 1)
            new["range"] = [log10(first) - 0.25 * step, log10(last) + 0.08 * step]
    elif axis == "xaxis":
        last = max(old["tickvals"])
        ticks = [value for value in old["tickvals"] if value >= last / 8]  # shorter ones would lie on one another
        new |= {
            "type": LINEAR,
            "range": [-0.02 * last, 1.01 * last],
            "tickvals": ticks,
            "ticktext": list(map(seq_text, ticks)),
        }
    else:
        most = max(values, default=1.0)
        lines = [shape["y0"] for shape in layout["shapes"] if most < shape["y0"] < NEAR * most]
        top = 1.1 * max([most, *lines])
        new |= {"type": LINEAR, "range": [0, top], "nticks": TICKS}
        if "tickvals" in old:  # of bytes
            step = 2.0 ** ceil(log2(top / TICKS))
            ticks = [int(i * step) for i in range(int(top / step) + 1)]
            new |= {"tickvals": ticks, "ticktext": [size(tick) if tick else "0" for tick in ticks]}
    layout[axis] = new
    if was != now:
        for annotation in layout["annotations"]:
            if annotation.get(f"{letter}ref") == letter:
                annotation[letter] = 10 ** annotation[letter]
        if axis == "yaxis":  # what is beyond the axis would be drawn upon its edge
            layout["shapes"] = [shape for shape in layout["shapes"] if shape["y0"] <= new["range"][1]]


@dataclass
class End:
    """Where a line ends, in shares of the axes; `status` in words where that is a point without a number."""

    x: float
    y: float
    status: str = ""


def _end(path: str, line: Trace, data: Sequence[Trace], layout: Layout) -> End | None:
    """The last point of a path; a mark that lies beyond its line ends it, and its words move into the label."""
    if "range" not in layout["xaxis"] or "range" not in layout["yaxis"]:
        return None
    last = _last_point(line)
    marks = [
        (end, trace)
        for trace in data
        if trace.get("legendgroup") == path and trace.get("mode") == "markers+text" and (end := _last_point(trace))
    ]
    beyond = [(end, trace) for end, trace in marks if not last or end[0] > last[0]]
    if not beyond and not last:
        return None
    (x, y), mark = max(beyond, key=lambda found: found[0][0]) if beyond else (last, None)
    status = ""
    if mark is not None:
        status = next((words.strip() for words in reversed(mark["text"]) if words.strip()), "")
        mark["text"] = ["" for _ in mark["text"]]
    height = y if mark is not None and mark.get("yaxis") == "y2" else _share(layout, "yaxis", y)
    return End(_share(layout, "xaxis", x), min(1.0, max(0.0, height)), status)


def _last_point(trace: Trace) -> tuple[float, float] | None:
    points = [(x, y) for x, y in zip(trace["x"], trace["y"], strict=True) if x and y]
    return points[-1] if points else None


def _label_lines(trace: Trace, status: str) -> list[str]:
    """ "flash (flash-attn-4)" in two lines; the second is the status where there is one."""
    name, _, beside = trace["name"].partition(" (")
    second = status or beside.removesuffix(")")
    return [name, second] if second else [name]


def _room(labels: dict[str, list[str]]) -> float:
    widths = [LABEL_PX * BOLD_EM * len(lines[0]) for lines in labels.values()]
    widths += [SMALL_PX * PLAIN_EM * len(lines[1]) for lines in labels.values() if len(lines) > 1]
    return round(max(widths, default=0) + 20)


def _share(layout: Layout, axis: str, value: float) -> float:
    """Where on the axis a value stands, from 0 to 1."""
    low, high = layout[axis]["range"]
    at = log10(value) if layout[axis].get("type") == LOG else value
    return (at - low) / (high - low)


def _labels(ends: dict[str, End], lines: dict[str, list[str]], below: bool) -> list[dict[str, Any]]:
    """One annotation a line, at its end; moved apart where they would share a place."""
    heights = {path: (LABEL_PX * 1.15 + SMALL_PX * 1.2 * (len(lines[path]) - 1)) / PLOT_PX for path in ends}
    smaller = min(1.0, (1 + 2 * BEYOND) / max(1e-9, sum(heights.values())))  # where there are many
    heights = {path: height * smaller for path, height in heights.items()}
    for x in {end.x for end in ends.values()} if not below else ():  # what ends elsewhere has a place of its own
        _spread({path: end for path, end in ends.items() if end.x == x}, heights)
    anchor, down = ("top", UNDER) if below else ("middle", 0.0)
    return [
        {
            "xref": "paper", "yref": "paper", "x": end.x + GAP, "y": end.y - down, "xanchor": "left", "yanchor": anchor,
            "align": "left", "showarrow": False, "name": f"label-{path}", "text": _label_text(lines[path], smaller),
            "font": {"size": LABEL_PX * smaller, "color": color(path)},
        }
        for path, end in ends.items()
    ]  # fmt: skip


def _label_text(lines: Sequence[str], smaller: float) -> str:
    small = [f'<span style="font-size:{round(SMALL_PX * smaller)}px">{line}</span>' for line in lines[1:]]
    return "<br>".join([f"<b>{lines[0]}</b>", *small])


def _spread(ends: dict[str, End], heights: dict[str, float]) -> None:
    """Moves labels up and down until none lies on another, and none beyond the axes where there is room for all."""
    order = sorted(ends, key=lambda path: ends[path].y)
    for path in order:
        ends[path].y = max(ends[path].y, 0.5 * heights[path] - BEYOND)
    for below, path in pairwise(order):
        ends[path].y = max(ends[path].y, ends[below].y + (heights[below] + heights[path]) / 2)
    for above, path in zip([None, *reversed(order)], reversed(order), strict=False):
        most = ends[above].y - (heights[above] + heights[path]) / 2 if above else 1 + BEYOND - 0.5 * heights[path]
        ends[path].y = min(ends[path].y, most)
