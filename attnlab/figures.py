"""Points → charts: a Run becomes plain Plotly figures, {"data": [...], "layout": {...}}, ready to be sent as JSON.

Three charts over the sequence length: `latency`, `memory`, `speedup`. What they have in common:

- Every path owns the same traces from the first moment on, empty or not, with a fixed `uid`: a series that a viewer
  hid stays hidden while points arrive, and nothing has to be matched by position.
- Only an `ok` point is a number. A line stops where a number is missing and starts anew behind it; what has no number
  stands as a mark, never as 0. A `suspect` number is a hollow warning that no line touches and no speed-up uses.
- `uirevision` depends on the sequence lengths alone: zoom survives new points and new runs of the same shape, and
  starts afresh when the x axis becomes another one.
- Colours are tokens, such as "var(--attn-flash)". The chart component resolves them in the browser by the theme the
  viewer looks at, so switching light and dark needs no rerun; `resolve` does the same here, for exported files.
- Dicts, not plotly.graph_objects: its import and its validation cost more than all the rest, twice a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from itertools import groupby
from math import ceil, floor, log10
from typing import Any

from attnlab.measurement import Measurement
from attnlab.run import Run

Figure = dict[str, Any]

# One accent a path, (light, dark). Standard is warm, flash a cold blue: the pair that every kind of colour vision tells
# apart. At least 3:1 against the page; the first ten are also the theme's chartCategoricalColors.
PATH_COLORS = {
    "standard": ("#d1480a", "#ff9d42"),
    "flash": ("#0b62d6", "#4db8ff"),
    "flash-attn-2": ("#00857a", "#2fd6c0"),
    "flash-attn-3": ("#6b4fd8", "#a99bff"),
    "flash-attn-4": ("#b0247f", "#ff86c8"),
    "sdpa-flash": ("#3f7d9c", "#9fd3ea"),
    "sdpa-cudnn": ("#4f8200", "#a6dd4a"),
    "sdpa-efficient": ("#8f6a00", "#f0d04c"),
    "sdpa-math": ("#7d5f4e", "#cdb09c"),
    "compiled": ("#a12c3e", "#ff8a8f"),
    "reference": ("#5f6875", "#b4bcc8"),
}
# A second sign beside the colour.
PATH_SYMBOLS = {
    "standard": "square",
    "flash": "circle",
    "flash-attn-2": "diamond",
    "flash-attn-3": "pentagon",
    "flash-attn-4": "star",
    "sdpa-flash": "triangle-up",
    "sdpa-cudnn": "triangle-down",
    "sdpa-efficient": "hexagon",
    "sdpa-math": "cross",
    "compiled": "bowtie",
    "reference": "triangle-right",
}
CHROME = {
    "text": ("#14181d", "#f1f4f7"),
    "quiet": ("#5a6470", "#a3adb9"),
    "grid": ("#e3e7ec", "#2a313a"),
    "page": ("#ffffff", "#0f1216"),
}
FONT = "'Source Sans', 'Source Sans 3', sans-serif"

# Token → colour, one table a theme.
TOKENS = {
    theme: {f"var(--attn-{name})": pair[i] for name, pair in {**PATH_COLORS, **CHROME}.items()}
    for i, theme in enumerate(("light", "dark"))
}

WORDS = {
    "oom": "out of memory",
    "unsupported": "not supported",
    "skipped": "skipped",
    "timeout": "timed out",
    "fault": "fault",
    "suspect": "suspect",
}
SYMBOLS = {
    "oom": "x",
    "unsupported": "diamond-x-open",
    "skipped": "triangle-right-open",
    "timeout": "hourglass-open",
    "fault": "asterisk-open",
    "suspect": "triangle-up-open",
}

LINE_PX, MARKER_PX, TEXT_PX, TITLE_PX = 4, 11, 16, 22


def latency(run: Run) -> Figure:
    """Milliseconds of one call against sequence length, log-log, with the 95 % interval as a band.

    What has no number stands at the upper edge, at its sequence length, in words.
    """
    clock = "host time" if run.device and run.device.kind == "cpu" else "device time"
    data, values = [], []
    edge: list[dict[str, Any]] = []
    for row, path in enumerate(run.sweep.paths):
        points = _points(run, path)
        hover = [_hover(run, m, _ms_text(m)) for m in points]
        data += _curve(run, path, points, lambda m: m.device_ms, _ms_interval, hover)
        values += [m.device_ms for m in points if m and m.status in ("ok", "suspect") and m.device_ms]
        without = [(m, text) for m, text in zip(points, hover, strict=True) if m and m.status not in ("ok", "suspect")]
        edge.append(_marks(path, "edge", without, [0.965 - 0.065 * row] * len(without), axis="y2"))
    layout = _layout(run, "Latency", f"{clock} of one call, ms")
    has_edge = any(len(trace["hovertext"]) > 0 and trace["x"] != [None] for trace in edge)
    layout["yaxis"] |= {"type": "log", "nticks": 5, "tickformat": ",~r", "autorangeoptions": {"include": _decades(values, headroom=has_edge)}}
    layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    return {"data": data + edge, "layout": layout}


def memory(run: Run) -> Figure:
    """Bytes one call adds above its inputs, log-log, with what the device holds as a line and out-of-memory marks."""
    capacity = run.device.total_bytes if run.device else 0
    data, values = [], [capacity] if capacity else []
    for path in run.sweep.paths:
        points = _points(run, path)
        hover = [_hover(run, m, _bytes_text(m)) for m in points]
        data += _curve(run, path, points, lambda m: m.peak_bytes, lambda m: None, hover)
        values += [m.peak_bytes for m in points if m and m.status in ("ok", "suspect") and m.peak_bytes]
        full = [(m, text) for m, text in zip(points, hover, strict=True) if m and _out_of_memory(run, m)]
        heights = [m.predicted_bytes or capacity or None for m, _ in full]
        values += [height for height in heights if height]
        data.append(_marks(path, "oom", full, heights))
    low, high = _decades(values)
    ticks = [1 << i for i in range(0, 61, 2 if high / low < 1e6 else 4)]
    layout = _layout(run, "Peak memory", "added by one call, on top of its inputs")
    layout["yaxis"] |= {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [bytes_text(tick) for tick in ticks],
        "autorangeoptions": {"include": [low, high]},
    }
    if capacity:
        line = {"color": "var(--attn-quiet)", "width": 2, "dash": "dash"}
        layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": capacity, "y1": capacity, "line": line, "layer": "below"}]
        layout["annotations"].append(
            {
                "xref": "paper",
                "x": 0,
                "y": log10(capacity),
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "text": f"{run.device.memory_name}: {bytes_text(capacity)}",
                "font": {"size": TEXT_PX, "color": "var(--attn-quiet)"},
            }
        )
    return {"data": data, "layout": layout}


def speedup(run: Run) -> Figure:
    """Standard ÷ each other path, log x, only where both are `ok`; 1× is a line."""
    others = [path for path in run.sweep.paths if path != "standard"] if "standard" in run.sweep.paths else []
    data: list[dict[str, Any]] = []
    for path in others:
        pairs = [(run.get("standard", seq), run.get(path, seq)) for seq in run.sweep.seqs]
        both = [_pair(slow, fast) for slow, fast in pairs]
        points = [fast if ratio else None for ratio, (_, fast) in zip(both, pairs, strict=True)]
        ratios = {fast.seq: ratio for ratio, (_, fast) in zip(both, pairs, strict=True) if ratio and fast}
        bound = {fast.seq for slow, fast in pairs if slow and fast and (slow.launch_bound or fast.launch_bound)}
        hover = [_hover(run, m, _ratio_text(ratios[m.seq])) if m else "" for m in points]
        traces = _curve(run, path, points, lambda m, r=ratios: r[m.seq][0], lambda m, r=ratios: r[m.seq][1], hover, bound)
        # Said on stage: every value for a single comparison, the last one where several lines would collide.
        wanted = set(ratios) - bound if len(others) == 1 else set(sorted(set(ratios) - bound)[-1:])
        line = traces[1]
        line |= {
            "mode": "lines+markers+text",
            "text": [f"<b>{ratio_text(ratios[seq][0])}</b>" if seq in wanted else "" for seq in line["x"]],
            "textposition": "top center",
            "textfont": {"size": TEXT_PX + 1, "color": _color(path)},
            "cliponaxis": False,
        }
        data += traces
    layout = _layout(run, "Speed-up", "standard ÷ the path, times faster")
    layout["yaxis"] |= {"rangemode": "tozero", "nticks": 6, "ticksuffix": "×", "autorangeoptions": {"include": [0, _headroom(data)]}}
    layout["shapes"] = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": {"color": "var(--attn-quiet)", "width": 2, "dash": "dash"}, "layer": "below"}
    ]
    if not others:
        _say(layout, "needs standard and one more path")
    return {"data": data, "layout": layout}


def resolve(figure: Any, theme: str) -> Any:
    """A copy of the figure with each colour token replaced for `theme` ("light" or "dark"), for files that stand alone."""
    if isinstance(figure, dict):
        return {key: resolve(value, theme) for key, value in figure.items()}
    if isinstance(figure, (list, tuple)):
        return [resolve(value, theme) for value in figure]
    return TOKENS[theme].get(figure, figure) if isinstance(figure, str) else figure


def path_label(run: Run, path: str) -> str:
    """The path's name; `flash` with what it chose, as soon as that is known: "flash (flash-attn-4 4.0.0b36)"."""
    if path != "flash":
        return path
    chosen = [m.provider for m in run.measurements if m.path == path and m.provider]
    return f"flash ({chosen[-1]})" if chosen else path


def seq_text(seq: int) -> str:
    """128 → "128", 4096 → "4K", 1000 → "1,000"."""
    return f"{seq // 1024}K" if seq >= 1024 and seq % 1024 == 0 else f"{seq:,}"


def bytes_text(size: float) -> str:
    """Three digits and a binary unit: 34,896,609,280 → "32.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size /= 1024
    else:
        unit = "PiB"
    return f"{number_text(size)} {unit}"


def number_text(value: float) -> str:
    """Three significant digits, no exponent."""
    if value == 0:
        return "0"
    return f"{value:,.{max(0, 2 - floor(log10(abs(value))))}f}"


def ratio_text(ratio: float) -> str:
    """6.88 → "6.9×", 66.4 → "66×"."""
    return f"{ratio:.1f}×" if ratio < 9.95 else f"{ratio:,.0f}×"


def _points(run: Run, path: str) -> list[Measurement | None]:
    """One entry for each sequence length of the sweep."""
    return [run.get(path, seq) for seq in run.sweep.seqs]


def _color(path: str) -> str:
    return f"var(--attn-{path})" if path in PATH_COLORS else "var(--attn-text)"


def _ms_interval(m: Measurement) -> tuple[float, float] | None:
    return (m.device_ms_low, m.device_ms_high) if m.device_ms_low and m.device_ms_high else None


def _pair(slow: Measurement | None, fast: Measurement | None) -> tuple[float, tuple[float, float] | None] | None:
    """(ratio, its interval from both intervals); None unless both are ok."""
    if not (slow and fast and slow.ok and fast.ok and slow.device_ms and fast.device_ms):
        return None
    low, high = _ms_interval(slow), _ms_interval(fast)
    return slow.device_ms / fast.device_ms, (low[0] / high[1], low[1] / high[0]) if low and high else None


def _out_of_memory(run: Run, m: Measurement) -> bool:
    """Tried and failed, or predicted not to fit."""
    too_much = bool(run.device and m.predicted_bytes and m.predicted_bytes > run.device.total_bytes)
    return m.status == "oom" or (m.status == "skipped" and too_much)


def _tried(m: Measurement) -> bool:
    return m.status != "skipped"


def _curve(
    run: Run,
    path: str,
    points: list[Measurement | None],
    value: Callable[[Measurement], float | None],
    interval: Callable[[Measurement], tuple[float, float] | None],
    hover: list[str],
    hollow: Iterable[int] = (),
) -> list[dict[str, Any]]:
    """The traces of one path: band, line, and hollow markers for what must not pass as a plain number.

    None breaks a line. A trace without any point holds one None, because Plotly takes an empty one out of its legend
    group and it would come back visible.
    """
    color = _color(path)
    common = {"type": "scatter", "legendgroup": path, "name": escape(path_label(run, path))}
    number = [m is not None and m.ok and bool(value(m)) for m in points]

    xs, lower, upper = [], [], []
    for good, stretch in groupby(zip(number, points, strict=True), key=lambda pair: pair[0] and interval(pair[1]) is not None):
        if good:
            members = [m for _, m in stretch]
            seqs = [m.seq for m in members]
            bounds = [interval(m) for m in members]
            xs += [*seqs, *reversed(seqs), None]
            lower += [*(low for low, _ in bounds), *(high for _, high in reversed(bounds)), None]
    band = common | {
        "uid": f"{path}:band",
        "x": xs or [None],
        "y": lower or [None],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": color,
        "opacity": 0.22,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line = common | {
        "uid": f"{path}:line",
        "x": list(run.sweep.seqs),
        "y": [value(m) if good else None for good, m in zip(number, points, strict=True)],
        "mode": "lines+markers",
        "line": {"width": LINE_PX, "color": color},
        "marker": {"size": MARKER_PX, "color": color, "symbol": PATH_SYMBOLS.get(path, "circle")},
        "hovertext": hover,
        "hoverinfo": "text",
        "connectgaps": False,
        "showlegend": True,
    }
    chosen = [
        (m, text)
        for good, m, text in zip(number, points, hover, strict=True)
        if m and ((good and (m.launch_bound or m.seq in hollow)) or (m.status == "suspect" and value(m)))
    ]
    marks = _marks(path, "marks", chosen, [value(m) for m, _ in chosen])
    return [band, line, marks]


def _marks(path: str, kind: str, chosen: list[tuple[Measurement, str]], heights: list[float | None], axis: str = "y") -> dict[str, Any]:
    """Markers without a line. The first of a row of equal ones says in words what it is."""
    color = _color(path)
    words, before = [], ""
    for m, _ in chosen:
        word = "" if m.ok else WORDS[m.status] if _tried(m) or kind != "oom" else "predicted: out of memory"
        words.append("" if word == before else word)
        before = word
    circle = PATH_SYMBOLS.get(path, "circle")
    symbols = [circle if m.ok else SYMBOLS[m.status] if kind != "oom" else "x" if _tried(m) else "x-open" for m, _ in chosen]
    # A launch-bound point is the path's own marker with a hole in it: the page shows through.
    fills = ["var(--attn-page)" if m.ok else color for m, _ in chosen]
    return {
        "type": "scatter",
        "uid": f"{path}:{kind}",
        "legendgroup": path,
        "showlegend": False,
        "x": [m.seq for m, _ in chosen] or [None],
        "y": heights or [None],
        "yaxis": axis,
        "mode": "markers+text",
        "marker": {
            "size": MARKER_PX + 2,
            "symbol": symbols or "circle",
            "color": fills or color,
            "line": {"width": 3, "color": color},
        },
        "text": words or [""],
        "textposition": "middle left",
        "textfont": {"size": TEXT_PX, "color": color},
        "hovertext": [text for _, text in chosen] or [""],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _hover(run: Run, m: Measurement | None, number: str) -> str:
    """What a point says: path, number, how it was obtained. Empty where there is no point."""
    if m is None:
        return ""
    lines = [f"<b>{escape(m.path)}</b> at {m.seq:,}"]
    lines.append(number if m.ok else f"{WORDS[m.status]}{': ' + number if number and m.status == 'suspect' else ''}")
    if m.samples:
        lines.append(f"{m.samples:,} samples, {escape(m.phase)} pass")
    if m.provider:
        lines.append(escape(m.provider))
    if m.launch_bound:
        lines.append("launch-bound: the host launches more slowly than the device computes")
    if not m.ok and m.predicted_ms:
        lines.append(f"predicted {number_text(m.predicted_ms)} ms")
    if not m.ok and m.predicted_bytes:
        lines.append(f"predicted {bytes_text(m.predicted_bytes)}")
    lines += [escape(text) for text in (m.reason, *m.notes, run.mark) if text]
    return "<br>".join(lines)


def _ms_text(m: Measurement | None) -> str:
    if m is None or not m.device_ms:
        return ""
    interval = _ms_interval(m)
    between = f" ({number_text(interval[0])} to {number_text(interval[1])})" if interval else ""
    host = " host time" if "host" in m.clock else ""
    return f"{number_text(m.device_ms)} ms{between}{host}"


def _bytes_text(m: Measurement | None) -> str:
    if m is None or m.peak_bytes is None:
        return ""
    return f"{bytes_text(m.peak_bytes)}{', ' + escape(m.memory_source) if m.memory_source else ''}"


def _ratio_text(ratio: tuple[float, tuple[float, float] | None]) -> str:
    value, interval = ratio
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{value:.2f}× standard's speed{between}"


def _decades(values: list[float], headroom: bool = False) -> list[float]:
    """The whole decades around the values, so that the y axis moves in few large steps while points arrive."""
    if not values:
        return [0.01, 10]
    low, high = 10 ** floor(log10(min(values))), 10 ** ceil(log10(max(values)) + (0.35 if headroom else 0.05))
    return [low, high]


def _headroom(data: list[dict[str, Any]]) -> float:
    """The top of the speed-up axis: room for the labels above the highest point."""
    return max([2.0, *(y * 1.15 for trace in data for y in trace["y"] if y)])


def _layout(run: Run, title: str, subtitle: str) -> dict[str, Any]:
    """What the three charts share. The x axis is the sweep's from the start, so nothing jumps as points arrive."""
    seqs = run.sweep.seqs
    step = (seqs[-1] / seqs[0]) ** (1 / (len(seqs) - 1)) if len(seqs) > 1 else 2
    every = ceil(len(seqs) / 8)
    labels = [seq_text(seq) if (len(seqs) - 1 - i) % every == 0 else "" for i, seq in enumerate(seqs)]
    axis = {
        "gridcolor": "var(--attn-grid)",
        "gridwidth": 1,
        "zeroline": False,
        "tickfont": {"size": TEXT_PX},
        "automargin": True,
    }
    if run.mark:
        subtitle = f"{subtitle}  ·  <b>{escape(run.mark)}</b>"
    layout: dict[str, Any] = {
        "title": {
            "text": f"<b>{title}</b>",
            "subtitle": {"text": subtitle, "font": {"size": TEXT_PX, "color": "var(--attn-quiet)"}},
            "font": {"size": TITLE_PX},
            "x": 0,
            "xref": "container",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 6, "l": 8},
        },
        "font": {"family": FONT, "size": TEXT_PX, "color": "var(--attn-text)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 24, "t": 104, "b": 8},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "hovermode": "closest",
        "hoverlabel": {"font": {"size": TEXT_PX}, "align": "left", "namelength": -1},
        "uirevision": ",".join(map(str, seqs)),
        "xaxis": axis
        | {
            "type": "log",
            "range": [log10(seqs[0] / step**0.4), log10(seqs[-1] * step**0.4)],
            "tickvals": list(seqs),
            "ticktext": labels,
            "tickangle": 0,
            "title": {"text": "sequence length", "font": {"size": TEXT_PX}},
        },
        "yaxis": axis | {"autorange": True},
        "annotations": [],
    }
    if not run.measurements:
        _say(layout, "waiting for the first point" if run.active else "no points")
    return layout


def _say(layout: dict[str, Any], text: str) -> None:
    """One quiet line in the middle of an empty chart."""
    layout["annotations"].append(
        {
            "xref": "paper",
            "yref": "paper",
            "x": 0.5,
            "y": 0.5,
            "showarrow": False,
            "text": text,
            "font": {"size": TITLE_PX - 4, "color": "var(--attn-quiet)"},
        }
    )
