"""Points → charts: a Run becomes plain Plotly figures, {"data": [...], "layout": {...}}, ready to be sent as JSON.

Four charts over the sequence length: `latency`, `memory`, `speedup`, `efficiency`. What they have in common:

- Every path owns the same traces from the first moment on, empty or not, with a fixed `uid`: a series that a viewer
  hid stays hidden while points arrive, and nothing has to be matched by position.
- Only an `ok` point is a number. A line stops where a number is missing and starts anew behind it; what has no number
  stands as a mark, never as 0. A `suspect` number is a hollow warning that no line touches and no speed-up uses.
- What stands for a point says whose: the trace's `meta` is its path, x its sequence length. A click is read from these.
- `uirevision` depends on the sequence lengths alone: zoom survives new points and new runs of the same shape, and
  starts afresh when the x axis becomes another one.
- Colours are tokens, such as "var(--attn-flash)". The chart component resolves them in the browser by the theme the
  viewer looks at, so switching light and dark needs no rerun.
- What a paper says of the run's very setting stands beside it in grey, from attnlab.claims with its source.
- Dicts, not plotly.graph_objects: its import and its validation cost more than all the rest, twice a second.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from html import escape
from itertools import groupby
from math import ceil, floor, log10, sqrt
from typing import Any

from attnlab import cost
from attnlab.claims import CLAIMS, Claim
from attnlab.growth import crossover, growth
from attnlab.hardware import dense_peak_tflops
from attnlab.measurement import STATUS_WORDS, Measurement
from attnlab.run import Run
from attnlab.summary import BASELINE, challenger
from attnlab.sweep import DEFAULT_PATHS
from attnlab.units import ms, size, times

Trace = dict[str, Any]
Layout = dict[str, Any]
Figure = dict[str, Any]  # {"data": [Trace, …], "layout": Layout}

NUMBERED = ("ok", "suspect")  # the statuses that come with a number

# Three clocks of one call: on the device, as one replay of a CUDA graph, and as a caller waits. Only the first has an
# interval, and only the first is in the sentence.
CLOCKS: dict[str, Callable[[Measurement], float | None]] = {
    "device": lambda m: m.device_ms,
    "graph": lambda m: m.graph_ms,
    "wall": lambda m: m.wall_ms,
}
COUNTS = ("exact", "dense")  # the pairs that the mask leaves; all of them

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
    "flex": ("#0a7d5a", "#7fe3b0"),
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
    "flex": "hourglass",
    "reference": "triangle-right",
}
CHROME = {
    "text": ("#14181d", "#f1f4f7"),
    "quiet": ("#5a6470", "#a3adb9"),
    "grid": ("#e3e7ec", "#2a313a"),
    "page": ("#ffffff", "#0f1216"),
}
LABEL_SHARE = 0.15  # of a chart's height: lower than that, a label below a point would lie on the numbers of the axis
FONT = "'Source Sans', 'Source Sans 3', sans-serif"

# Token → colour, one table a theme.
TOKENS = {
    theme: {f"var(--attn-{name})": pair[i] for name, pair in {**PATH_COLORS, **CHROME}.items()}
    for i, theme in enumerate(("light", "dark"))
}

SYMBOLS = {
    "oom": "x",
    "unsupported": "diamond-x-open",
    "skipped": "triangle-right-open",
    "timeout": "hourglass-open",
    "fault": "asterisk-open",
    "suspect": "triangle-up-open",
    "unreached": "circle-x-open",
}

LINE_PX, MARKER_PX, TEXT_PX, TITLE_PX, LEGEND_ROW_PX = 4, 11, 17, 24, 27
AXIS = {
    "gridcolor": "var(--attn-grid)",
    "gridwidth": 1,
    "zeroline": False,
    "tickfont": {"size": TEXT_PX},
    "automargin": True,
}
EDGE_AXIS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}  # from the floor to the top


def latency(run: Run, clock: str = "device") -> Figure:
    """Milliseconds of one call against sequence length, log-log; of the device's clock the 95 % interval as a band.

    What has no number stands at the upper edge, at its sequence length, in words.
    """
    value, interval = CLOCKS[clock], _interval_of(clock)
    data: list[Trace] = []
    edge: list[Trace] = []
    values: list[float] = []
    for row, path in enumerate(run.sweep.paths):
        points = _points(run, path)
        hover = [_hover(run, m, _time_words(m)) for m in points]
        hollow = {m.seq for m in points if m and m.launch_bound}
        data += _curve(run, path, points, value, interval, hover, hollow)
        data.append(_growth_line(run, path, "time" if clock == "device" else ""))
        numbered = [m is not None and m.status in NUMBERED and bool(value(m)) for m in points]
        values += [value(m) for good, m in zip(numbered, points, strict=True) if good]
        without = [(m, text) for good, m, text in zip(numbered, points, hover, strict=True) if m and not good]
        heights = [0.965 - 0.065 * row] * len(without)
        edge.append(_marks(run, path, "edge", without, heights) | {"yaxis": "y2"})
    bound = "○ launch-bound" if any(m.ok and m.launch_bound for m in run.measurements) else ""
    layout = _layout(run, "Latency", clock_words(run, clock))
    lacking = f"at the top: no {clock} time" if any(m.ok and not value(m) for m in run.measurements) else ""
    corner = {"x": 1, "xanchor": "right", "y": 0.01, "yanchor": "bottom", "align": "right"}  # free where curves grow
    annotate(layout, "<br>".join(filter(None, [lacking, bound])), corner)
    low, high = 0.01, 100.0
    if values:
        marked = any(trace["y"] != [None] for trace in edge)
        low, high = _decades(values, headroom=2.5 if marked else 1.1)
        layout["yaxis"]["autorangeoptions"] = {"include": [low, high]}
    else:
        layout["yaxis"] |= {"autorange": False, "range": [log10(low), log10(high)]}
    # Asked for more ticks than there are decades, Plotly labels the digits between them, and they run into one another.
    ticks = max(3, min(round(log10(high / low)) + 1, 5))
    layout["yaxis"] |= {"type": "log", "nticks": ticks, "tickformat": ",~r"}
    layout["yaxis2"] = dict(EDGE_AXIS)
    return {"data": data + edge, "layout": layout}


def memory(run: Run) -> Figure:
    """Bytes one call adds above its inputs, log-log, with what the device holds as a line and out-of-memory marks."""
    capacity = run.device.total_bytes if run.device else 0
    data: list[Trace] = []
    values: list[float] = []
    for path in run.sweep.paths:
        points = _points(run, path)
        hover = [_hover(run, m, _memory_words(m)) for m in points]
        data += _curve(run, path, points, lambda m: m.peak_bytes, lambda m: None, hover)
        values += [m.peak_bytes for m in points if m and m.status in NUMBERED and m.peak_bytes]
        full = [(m, text) for m, text in zip(points, hover, strict=True) if m and m.status == "oom"]
        # One that was really tried needed at least what the device holds.
        heights = [m.predicted_bytes or capacity or None for m, _ in full]
        values += [height for height in heights if height]
        data.append(_marks(run, path, "oom", full, heights, side="top"))
        data.append(_growth_line(run, path, "memory"))
    # With the capacity known the axis spans five decades from the start, so that the line stays where it is.
    low, high = _decades([*values, capacity, capacity / 1e5] if capacity else values or [2**20, 2**30], headroom=2)
    layout = _layout(run, "Peak memory", "added by one call")
    ticks = [1 << i for i in range(0, 64, 2 if high / low < 1e5 else 4)]
    layout["yaxis"] |= {"type": "log", "tickvals": ticks, "ticktext": [size(tick) for tick in ticks]}
    if values:
        layout["yaxis"]["autorangeoptions"] = {"include": [low, high]}
    else:
        layout["yaxis"] |= {"autorange": False, "range": [log10(low), log10(high)]}
    if capacity:
        reference_line(layout, capacity)
        annotate(
            layout,
            f"{run.device.memory_name}: {size(capacity)}",
            # Its ground hides the grid line that would cross it, and not the line above it.
            {
                "x": 0, "xanchor": "left", "yref": "y", "y": log10(capacity), "yanchor": "top", "yshift": -3,
                "bgcolor": "var(--attn-page)",
            },
        )  # fmt: skip
    return {"data": data, "layout": layout}


def speedup(run: Run, clock: str = "device") -> Figure:
    """Standard ÷ each other path, log x, only where both are `ok`; 1× is a line. Hollow: launch-bound."""
    others = [path for path in run.sweep.paths if path != BASELINE] if BASELINE in run.sweep.paths else []
    main = challenger(run) if others else None
    data: list[Trace] = []
    top = 2.0
    for path in others:
        pairs = [(run.get(BASELINE, seq), run.get(path, seq)) for seq in run.sweep.seqs]
        both = {fast.seq: (slow, fast) for slow, fast in pairs if slow and fast and slow.ok and fast.ok}
        ratios = {seq: _ratio(*pair, clock) for seq, pair in both.items()}
        hollow = {fast.seq for slow, fast in pairs if slow and fast and (slow.launch_bound or fast.launch_bound)}
        points = [fast if fast and ratios.get(fast.seq) else None for _, fast in pairs]
        hover = [_hover(run, m, _ratio_words(*both[m.seq])) if m else "" for m in points]
        band, line, marks = _curve(
            run, path, points, lambda m, r=ratios: r[m.seq][0], lambda m, r=ratios: r[m.seq][1], hover, hollow
        )
        # Said on stage: the values of a single comparison, only the last of the main one where several lines cross.
        plain = {m.seq: ratios[m.seq][0] for m in points if m and m.seq not in hollow}
        said = _labelled_seqs(run, plain) if len(others) == 1 else list(plain)[-1:] if path == main else []
        line |= {
            "mode": "lines+markers+text",
            "text": [f"<b>{times(ratios[seq][0])}</b>" if seq in said else "" for seq in line["x"]],
            "textposition": _free_side(line["y"]),
            "textfont": {"size": TEXT_PX + 1, "color": color(path)},
            "cliponaxis": False,
        }
        data += [band, line, marks]
        top = max([top, *(1.15 * y for y in line["y"] if y)])
    papers = [claim for claim in CLAIMS if len(claim.published) == 2 and claim.matches(run)]
    published = [_published(run, claim) for claim in papers]
    data[:0] = published  # below the curves
    top = max([top, *(1.1 * y for trace in published for y in trace["y"])])
    if main:
        data += _crossover_lines(run, main, shown=clock == "device")
    ratio = f"{BASELINE} ÷ {others[0] if len(others) == 1 else 'path'}"
    layout = _layout(run, "Speed-up", clock_words(run, clock))
    falls = any(_falls(trace["y"]) for trace in data if trace.get("uid") == f"{main}-line")
    side = {"x": 0.99, "xanchor": "right"} if falls else {"x": 0.01, "xanchor": "left"}
    annotate(layout, ratio, {**side, "y": 0.99, "yanchor": "top"})
    for claim in papers:
        place = {"x": 0.99, "xanchor": "right", "yref": "y", "y": claim.published[0], "yanchor": "top"}
        annotate(layout, _published_words(claim), place)
    layout["yaxis"] |= {
        "nticks": 6,
        "ticksuffix": "×",
        "rangemode": "tozero",
        # A first, wide interval may reach out of the picture; the line may not shrink to the floor because of it.
        "autorangeoptions": {"include": [0, top], "clipmax": 1.6 * top},
    }
    layout["yaxis2"] = dict(EDGE_AXIS)
    reference_line(layout, 1)
    if not any(y for trace in data for y in trace["y"]):
        layout["yaxis"] |= {"autorange": False, "range": [0, 2.2]}
        if run.measurements and clock != "device":
            annotate(layout, f"no pair of {clock} times")
    if not others:
        annotate(layout, f"needs {BASELINE} and one more path")
    return {"data": data, "layout": layout}


def efficiency(run: Run, count: str = "exact") -> Figure:
    """Achieved TFLOP/s against sequence length, log x, under the ceilings that are known; `count` is one of COUNTS.

    Linear in y: half as high is half of what the card can do. A rate above the dense peak is flagged with its share and
    stands where it is.
    """
    peak, product = ceilings(run)
    data: list[Trace] = []
    top = [1.08 * ceiling for ceiling in (peak, product) if ceiling]
    for path in run.sweep.paths:
        points = _points(run, path)
        rates = {m.seq: rate for m in points if m and (rate := tflops(m, count))}
        bounds = {m.seq: bound for m in points if m and (bound := _rate_interval(m, count))}
        hover = [_hover(run, m, _rate_words(run, m, count)) for m in points]
        hollow = {m.seq for m in points if m and m.launch_bound}
        data += _curve(
            run, path, points, lambda m, r=rates: r.get(m.seq), lambda m, b=bounds: b.get(m.seq), hover, hollow
        )
        above = [(m, text) for m, text in zip(points, hover, strict=True) if m and peak and rates.get(m.seq, 0) > peak]
        flags = _marks(run, path, "above", above, [rates[m.seq] for m, _ in above])
        if above:
            flags["marker"]["symbol"], flags["marker"]["color"] = SYMBOLS["suspect"], color(path)
            flags["text"] = [f"{rates[m.seq] / peak:,.0%} of the peak" for m, _ in above]
            flags["textposition"] = ["top left" if m.seq > run.sweep.seqs[0] else "top right" for m, _ in above]
        data.append(flags)
        top += [1.08 * rates[m.seq] for m in points if m and m.status in NUMBERED and m.seq in rates]
    papers = [claim for claim in CLAIMS if claim.matches(run)]
    top += [1.12 * claim.published[0] for claim in papers if len(claim.published) == 1]
    layout = _layout(run, "Efficiency", f"TFLOP/s, {count} count", legend_columns=1)
    include = {"autorangeoptions": {"include": [0, max(top, default=1.0)]}}
    layout["yaxis"] |= {"rangemode": "tozero", "nticks": 6, "tickformat": ",~r", **include}
    data += [_published(run, claim) for claim in papers if len(claim.published) == 1]
    for ceiling, text in ((peak, "dense peak, data sheet"), (product, "matrix product, measured here")):
        if ceiling:
            reference_line(layout, ceiling)
            place = {"x": 0, "xanchor": "left", "yref": "y", "y": ceiling, "yanchor": "bottom"}
            annotate(layout, f"{text}: {ceiling:,.3g}", place)
    if run.device and not peak:
        annotate(layout, "no data sheet peak known here", {"x": 0, "xanchor": "left", "y": 1, "yanchor": "top"})
    return {"data": data, "layout": layout}


def clock_words(run: Run, clock: str) -> str:
    """What a chart draws, as its subtitle: "device ms, cold L2", "CUDA graph ms", "wall ms"; "host ms" on a CPU."""
    if clock != "device":
        return {"graph": "CUDA graph ms", "wall": "wall ms"}[clock]
    return "host ms" if run.device and run.device.kind == "cpu" else f"device ms, {run.sweep.l2} L2"


def ceilings(run: Run) -> tuple[float | None, float | None]:
    """(dense peak of the data sheet, rate of a large matrix product measured here), TFLOP/s in the run's dtype."""
    dtype, device = run.sweep.problem.dtype, run.device
    return (dense_peak_tflops(device.name, dtype), dict(device.matmul_tflops).get(dtype)) if device else (None, None)


def tflops(m: Measurement, count: str) -> float | None:
    """Achieved TFLOP/s by device time, with the exact or the dense count of the work."""
    work = m.flops if count == "exact" else m.dense_flops or cost.dense_flops(m.problem)
    return work / m.device_ms / 1e9 if work and m.device_ms else None


def path_label(run: Run, path: str) -> str:
    """The path's name; `flash` with what it chose, once that is known: "flash (flash-attn-4 4.0.0b36)".

    Beside more than one other path the legend has no room for it, and the hover says it alone.
    """
    chosen = [m.provider for m in run.measurements if m.path == path == "flash" and m.provider]
    return f"flash ({chosen[-1].split(' · ')[0]})" if chosen and _legend_columns(run) == 1 else path


def seq_text(seq: int) -> str:
    """A tick: 128 → "128", 4096 → "4K", 1000 → "1,000"."""
    return f"{seq // 1024}K" if seq % 1024 == 0 else f"{seq:,}"


def _points(run: Run, path: str) -> list[Measurement | None]:
    """One entry for each sequence length of the sweep."""
    return [run.get(path, seq) for seq in run.sweep.seqs]


def color(path: str) -> str:
    return f"var(--attn-{path})" if path in PATH_COLORS else "var(--attn-text)"


def _interval_of(clock: str) -> Callable[[Measurement], tuple[float, float] | None]:
    return lambda m: m.interval_ms if clock == "device" else None


def _ratio(slow: Measurement, fast: Measurement, clock: str) -> tuple[float, tuple[float, float] | None] | None:
    """(slow ÷ fast, its interval from both intervals); None where a time is missing."""
    value, interval = CLOCKS[clock], _interval_of(clock)
    if not (value(slow) and value(fast)):
        return None
    above, below = interval(slow), interval(fast)
    return value(slow) / value(fast), (above[0] / below[1], above[1] / below[0]) if above and below else None


def _rate_interval(m: Measurement, count: str) -> tuple[float, float] | None:
    rate = tflops(m, count)
    return (
        (rate * m.device_ms / m.interval_ms[1], rate * m.device_ms / m.interval_ms[0])
        if rate and m.interval_ms
        else None
    )


def _curve(
    run: Run,
    path: str,
    points: list[Measurement | None],
    value: Callable[[Measurement], float | None],
    interval: Callable[[Measurement], tuple[float, float] | None],
    hover: list[str],
    hollow: Container[int] = (),
) -> list[Trace]:
    """The traces of one path: band, line, and hollow markers for what must not pass as a plain number.

    None breaks a line. A trace without any point holds one None, because Plotly takes an empty one out of its legend
    group and it would come back visible.
    """
    accent = color(path)
    common = {
        "type": "scatter",
        "meta": path,
        "legendgroup": path,
        "name": escape(path_label(run, path)),
        "visible": _visible(run, path),
    }
    number = [m is not None and m.ok and bool(value(m)) for m in points]

    xs, ys = [], []
    bounds = [interval(m) if good else None for good, m in zip(number, points, strict=True)]
    for bounded, stretch in groupby(zip(run.sweep.seqs, bounds, strict=True), key=lambda pair: pair[1] is not None):
        if bounded:
            outline = list(stretch)
            xs += [*(seq for seq, _ in outline), *(seq for seq, _ in reversed(outline)), None]
            ys += [*(low for _, (low, _) in outline), *(high for _, (_, high) in reversed(outline)), None]
    band = common | {
        "uid": f"{path}-band",
        "x": xs or [None],
        "y": ys or [None],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": accent,
        "opacity": 0.22,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line = common | {
        "uid": f"{path}-line",
        "x": list(run.sweep.seqs),
        "y": [value(m) if good else None for good, m in zip(number, points, strict=True)],
        "mode": "lines+markers",
        # PyTorch's own kernels are dotted, packages solid: a third sign beside colour and marker.
        "line": {"width": LINE_PX, "color": accent, "dash": "dot" if path.startswith("sdpa") else "solid"},
        "marker": {"size": MARKER_PX, "color": accent, "symbol": PATH_SYMBOLS.get(path, "circle")},
        "hovertext": hover,
        "hoverinfo": "text",
        "connectgaps": False,
        "showlegend": True,
    }
    chosen = [
        (m, text)
        for good, m, text in zip(number, points, hover, strict=True)
        if m and ((good and m.seq in hollow) or (m.status == "suspect" and value(m)))
    ]
    return [band, line, _marks(run, path, "marks", chosen, [value(m) for m, _ in chosen])]


def _visible(run: Run, path: str) -> bool | str:
    """A recorded run opens with the two paths that the story is about; a click in the legend shows each other one. In a
    measured run the visitor has chosen the paths."""
    in_the_story = path in DEFAULT_PATHS or not run.recorded or not set(DEFAULT_PATHS) <= set(run.sweep.paths)
    return True if in_the_story else "legendonly"


def _marks(
    run: Run,
    path: str,
    kind: str,
    chosen: list[tuple[Measurement, str]],
    heights: list[float | None],
    side: str = "middle",
) -> Trace:
    """Markers without a line. The first of several alike says in words what it is.

    A plain number that must not pass as one (launch-bound), and an `ok` point without one, is the path's own marker with a
    hole in it.
    """
    accent, own = color(path), PATH_SYMBOLS.get(path, "circle")
    words = ["" if m.ok else "predicted " * m.foreseen + STATUS_WORDS[m.status] for m, _ in chosen]
    first = [word if word != before else "" for word, before in zip(words, ["", *words], strict=False)]
    middle = run.sweep.seqs[len(run.sweep.seqs) // 2]
    return {
        "type": "scatter",
        "meta": path,
        "uid": f"{path}-{kind}",
        "legendgroup": path,
        "visible": _visible(run, path),
        "showlegend": False,
        "x": [m.seq for m, _ in chosen] or [None],
        "y": heights or [None],
        "mode": "markers+text",
        "marker": {
            "size": MARKER_PX + 2,
            "symbol": [own if m.ok else "x-open" if m.foreseen else SYMBOLS[m.status] for m, _ in chosen] or own,
            "color": ["var(--attn-page)" if m.ok else accent for m, _ in chosen] or accent,
            "line": {"width": 3, "color": accent},
        },
        "text": [f"  {word}  " if word else "" for word in first] or [""],
        "textposition": [f"{side} {'left' if m.seq >= middle else 'right'}" for m, _ in chosen] or f"{side} left",
        "textfont": {"size": TEXT_PX, "color": accent},
        "hovertext": [text for _, text in chosen] or [""],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _hover(run: Run, m: Measurement | None, number: str) -> str:
    """What a point says: path, number, how it was obtained. Empty where there is no point."""
    if m is None:
        return ""
    doubted = f": {number}" if number and m.status == "suspect" else ""
    lines = [f"<b>{escape(m.path)}</b> at {m.seq:,}", number if m.ok else STATUS_WORDS[m.status] + doubted]
    if m.samples:
        lines.append(f"{m.samples:,} samples, {escape(m.phase)} pass")
    if m.provider:
        lines.append(escape(m.provider))
    if m.launch_bound:
        lines.append("launch-bound: the host launches more slowly than the device computes")
    if not m.ok and m.predicted_ms:
        lines.append(f"predicted {ms(m.predicted_ms)}")
    if not m.ok and m.predicted_bytes:
        lines.append(f"predicted {size(m.predicted_bytes)}")
    lines += [escape(text) for text in (m.reason, *m.notes, run.mark) if text]
    return "<br>".join(lines)


def _time_words(m: Measurement | None) -> str:
    """All three clocks, each with what is known of it."""
    if m is None or not m.device_ms:
        return ""
    between = f" ({ms(m.interval_ms[0])} to {ms(m.interval_ms[1])})" if m.interval_ms else ""
    beside = [f"{words} {ms(value)}" for words, value in (("CUDA graph", m.graph_ms), ("wall", m.wall_ms)) if value]
    first = f"{ms(m.device_ms)}{between}{', ' + escape(m.clock) if m.clock else ''}"
    return "<br>".join([first, *[" · ".join(beside)] * bool(beside)])


def _memory_words(m: Measurement | None) -> str:
    if m is None or m.peak_bytes is None:
        return ""
    return f"{size(m.peak_bytes)}{', ' + escape(m.memory_source) if m.memory_source else ''}"


def _ratio_words(slow: Measurement, fast: Measurement) -> str:
    """By all three clocks; the device's with its interval."""
    said = []
    for clock, words in (("device", f"as fast as {BASELINE}"), ("graph", "as CUDA graphs"), ("wall", "by wall time")):
        if ratio := _ratio(slow, fast, clock):
            between = f" ({ratio[1][0]:.2f} to {ratio[1][1]:.2f})" if ratio[1] else ""
            said.append(f"{ratio[0]:.2f}× {words}{between}")
    return "<br>".join(said)


def _rate_words(run: Run, m: Measurement | None, count: str) -> str:
    """The rate by one count, its share of each ceiling, and the rate by the other count where that differs."""
    rate = tflops(m, count) if m else None
    if not rate:
        return ""
    peak, product = ceilings(run)
    said = [f"{rate:,.3g} TFLOP/s, {count} count"]
    said += [f"{rate / peak:.1%} of the dense peak of the data sheet, {peak:,g}"] if peak else []
    said += [f"{rate / product:.1%} of a matrix product measured here, {product:,.3g}"] if product else []
    said += ["above the peak: a rate that cannot be"] if peak and rate > peak and count == "exact" else []
    other = next(name for name in COUNTS if name != count)
    differs = tflops(m, other)
    said += [f"{differs:,.3g} TFLOP/s by the {other} count"] if differs and differs != rate else []
    return "<br>".join(said)


def _labelled_seqs(run: Run, heights: dict[int, float]) -> list[int]:
    """The sequence lengths, of those given with their heights, whose labels have room: the last first, then the highest."""
    chosen: list[int] = []
    for seq in [*list(heights)[-1:], *sorted(heights, key=heights.__getitem__, reverse=True)]:
        beside = [c for c in chosen if abs(run.sweep.seqs.index(seq) - run.sweep.seqs.index(c)) < _label_every(run)]
        if all(abs(heights[seq] - heights[c]) > 0.08 * max(heights.values()) for c in beside):
            chosen.append(seq)
    return chosen


def _free_side(heights: list[float | None]) -> list[str]:
    """Where a label lies neither on the line nor on the numbers of the axis: above a point, but below the bottom of a
    valley that is high enough, and to the right where the line comes down to a point."""
    floor_at = LABEL_SHARE * max(filter(None, heights), default=0.0)
    sides = []
    for before, here, after in zip([None, *heights], heights, [*heights[1:], None], strict=False):
        if not (before and here and before > here):
            sides.append("top center")
        elif here > floor_at and not (after and after < here):
            sides.append("bottom center")
        else:
            sides.append("top right" if after else "top center")  # beyond the last the picture ends
    return sides


def _falls(heights: list[float | None]) -> bool:
    """Whether a line is highest in its left half, as far as three points can say so."""
    known = [(y, i) for i, y in enumerate(heights) if y]
    return len(known) > 2 and max(known)[1] < len(heights) / 2


def _decades(values: list[float], headroom: float = 1.1) -> list[float]:
    """The whole decades around the values, so that a y axis moves in few large steps while points arrive."""
    return [10.0 ** floor(log10(min(values))), 10.0 ** ceil(log10(max(values) * headroom))]


def reference_line(layout: Layout, y: float) -> None:
    """A dashed reference line from edge to edge."""
    line = {"color": "var(--attn-quiet)", "width": 2, "dash": "dash"}
    layout["shapes"].append(
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line, "layer": "below"}
    )


def _growth_line(run: Run, path: str, quantity: str) -> Trace:
    """The fitted power law, over the points that it was fitted to, with its exponent; `quantity` "" draws none.

    Thin and dashed in the colour of the text, so that it is seen on the line that it describes. Named for the two paths
    that the story is about.
    """
    fit = growth(run, path, quantity) if quantity else None
    seqs = [fit.first_seq, round(sqrt(fit.first_seq * fit.last_seq)), fit.last_seq] if fit else []
    above = path == BASELINE
    said = f"s<sup>{fit.exponent:.2f}</sup>" if fit and path in (BASELINE, challenger(run)) else ""
    return {
        "type": "scatter",
        "uid": f"{path}-growth",
        "legendgroup": path,
        "visible": _visible(run, path),
        "showlegend": False,
        "hoverinfo": "skip",
        "x": seqs or [None],
        "y": [fit.at(seq) for seq in seqs] if fit else [None],
        "mode": "lines+markers+text",
        "marker": {"size": 14, "opacity": 0},  # keeps the text off the line
        "line": {"width": 1.5, "color": "var(--attn-text)", "dash": "dash"},
        "text": ["", said, ""] if fit else [""],
        "textposition": "top left" if above else "bottom right",
        "textfont": {"size": TEXT_PX, "color": color(path)},
        "cliponaxis": False,
    }


def _published_words(claim: Claim) -> str:
    unit = "" if len(claim.published) == 1 else "×"
    return f"{claim.paper}, published: {' to '.join(f'{value:,g}{unit}' for value in claim.published)}"


def _published(run: Run, claim: Claim) -> Trace:
    """What a paper says of the run's own setting, in grey: a mark for a rate, a band for a range of speed-ups."""
    seqs = [seq for seq in claim.seqs if seq in run.sweep.seqs]
    said, unit = _published_words(claim), " TFLOP/s" if len(claim.published) == 1 else ""
    common = {
        "type": "scatter",
        "uid": f"published-{claim.name}",
        "name": claim.paper,
        "showlegend": False,
        "hoverinfo": "text",
        "hovertext": "<br>".join(map(escape, (f"{said}{unit}", claim.setting, claim.source))),
        "textfont": {"size": TEXT_PX, "color": "var(--attn-quiet)"},
        "cliponaxis": False,
    }
    if len(claim.published) == 1:
        mark = {"size": MARKER_PX + 3, "symbol": "diamond-open", "color": "var(--attn-quiet)", "line": {"width": 3}}
        side = "left" if seqs[-1] > run.sweep.seqs[0] else "right"
        place = {"mode": "markers+text", "textposition": f"top {side}", "marker": mark}
        return common | place | {"x": seqs[-1:], "y": list(claim.published), "text": [said]}
    low, high = claim.published
    band = {
        "fill": "toself",
        "fillcolor": "var(--attn-quiet)",
        "opacity": 0.25,
        "line": {"width": 0},
        "hoveron": "fills",
    }
    outline = {"x": [*seqs, *reversed(seqs)], "y": [low] * len(seqs) + [high] * len(seqs)}
    return common | band | outline | {"mode": "lines"}


def _crossover_lines(run: Run, path: str, shown: bool) -> list[Trace]:
    """Where the path overtakes standard, as a thin line with its interval as a band, from the floor to the top."""
    found = crossover(run, path) if shown else None
    at = found.seq if found and found.seq else None
    low, high = (found.low, found.high) if at and found.low and found.high else (None, None)
    common = {
        "type": "scatter",
        "legendgroup": path,
        "visible": _visible(run, path),
        "showlegend": False,
        "hoverinfo": "skip",
        "yaxis": "y2",
    }
    band = common | {
        "uid": f"{path}-crossband",
        "x": [low, low, high, high] if low else [None],
        "y": [0, 1, 1, 0] if low else [None],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": color(path),
        "opacity": 0.15,
    }
    line = common | {
        "uid": f"{path}-crossover",
        "x": [at, at] if at else [None],
        "y": [0, 0.78] if at else [None],
        "mode": "lines+text",
        "line": {"width": 1.5, "color": "var(--attn-quiet)", "dash": "dot"},
        "text": ["", f"even at {round(at):,}"] if at else [""],
        "textposition": "top right" if at and at < run.sweep.seqs[len(run.sweep.seqs) // 2] else "top left",
        "textfont": {"size": TEXT_PX, "color": "var(--attn-quiet)"},
        "cliponaxis": False,
    }
    return [band, line]


def _layout(run: Run, title: str, subtitle: str, legend_columns: int = 0) -> Layout:
    """What the charts share. The x axis is the sweep's from the start, so nothing jumps as points arrive."""
    seqs = run.sweep.seqs
    step = (seqs[-1] / seqs[0]) ** (1 / (len(seqs) - 1)) if len(seqs) > 1 else 2
    every = _label_every(run)
    labels = [seq_text(seq) if (len(seqs) - 1 - i) % every == 0 else "" for i, seq in enumerate(seqs)]
    # The legend stands between title and plot. Its rows are counted here, so that its height never depends on a width.
    columns = legend_columns or _legend_columns(run)
    legend_px = LEGEND_ROW_PX * ceil(len(run.sweep.paths) / columns)
    layout = frame(title, subtitle, legend_px) | {
        "legend": {
            "orientation": "h" if columns > 1 else "v",
            "tracegroupgap": 0,
            "entrywidthmode": "fraction",
            "entrywidth": 0.48 if columns > 1 else 0,
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "uirevision": ",".join(map(str, seqs)),
        "xaxis": AXIS
        | {
            "type": "log",
            "range": [log10(seqs[0] / step**0.4), log10(seqs[-1] * step**0.4)],
            "tickvals": list(seqs),
            "ticktext": labels,
            "tickangle": 0,
            "title": {
                "text": f"sequence length{'<br>' + escape(run.mark) if run.mark else ''}",
                "font": {"size": TEXT_PX},
            },
        },
        "yaxis": AXIS | {"autorange": True},
    }
    if not run.measurements:
        annotate(layout, "waiting for the first point" if run.active else "no points")
    elif not run.reached:
        annotate(layout, "no point was reached")
    return layout


def frame(title: str, subtitle: str, beneath_px: int = 0) -> Layout:
    """A chart without axes: title, margins, looks. `beneath_px` are kept free between the title and the plot."""
    heading = f'<b>{title}</b>  <span style="font-size:{TEXT_PX}px;fill-opacity:0.7">{subtitle}</span>'
    return {
        "title": {
            "text": heading,
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
        "margin": {"l": 8, "r": 24, "t": 42 + beneath_px, "b": 8},
        "modebar": {"bgcolor": "var(--attn-page)", "color": "var(--attn-quiet)", "activecolor": "var(--attn-text)"},
        "hovermode": "closest",
        "hoverlabel": {"font": {"size": TEXT_PX}, "align": "left", "namelength": -1},
        "annotations": [],
        "shapes": [],
    }


def _label_every(run: Run) -> int:
    """So many points apart labels stand, for six of them to fit side by side in the narrowest column."""
    return ceil(len(run.sweep.seqs) / 6)


def _legend_columns(run: Run) -> int:
    return 1 if len(run.sweep.paths) <= 2 else 2


def annotate(layout: Layout, text: str, where: dict[str, Any] | None = None) -> None:
    """One quiet line, in the middle of an empty chart unless told otherwise."""
    place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.6} | (where or {})
    font = {"size": TEXT_PX, "color": "var(--attn-quiet)"}
    layout["annotations"].append(place | {"showarrow": False, "text": text, "font": font})
