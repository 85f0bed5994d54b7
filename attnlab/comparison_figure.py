"""Several runs → two charts of their times, or of their peaks of memory: all on one axis, and the ratios to the first run.

As in attnlab.chart_style a chart is a plain Plotly dict with colours as tokens. A path keeps its colour and its marker in
every run; which run it is, the dash of the line says, and the letter before its name. Where nothing may be said of a ratio
(launch-bound, other clocks, memory counted in another way) its marker is hollow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from math import ceil, floor, log2, log10

from attnlab.chart_style import (
    AXIS,
    LEGEND_ROW_PX,
    LINE_PX,
    MARKER_PX,
    PATH_SYMBOLS,
    TEXT_PX,
    Figure,
    Layout,
    Trace,
    annotate,
    color,
    frame,
    reference_line,
    seq_text,
)
from attnlab.comparison import LETTERS, MEMORY, Ratio, amount, ratios
from attnlab.measurement import Measurement
from attnlab.run import Run
from attnlab.sweep import DEFAULT_PATHS, TIME
from attnlab.units import ms, size

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")  # one a run
MADE_FOR_PX = 760  # two stand side by side on the page
LEGEND_COLUMNS = 3
ONE_LINE = 64  # characters below the axis
LINEAR_TO = 3.0  # ratios further apart than this are drawn on a log axis
LABELS = 10
SIZE_TICKS = 6
RATIO_WORDS = {  # why a marker is hollow, the title, what a ratio above 1 means
    TIME: ("launch-bound, or other clocks", "Ratio of their times", "slower"),
    MEMORY: ("counted differently", "Ratio of their peaks", "more memory"),
}


def paths_of(runs: Sequence[Run]) -> list[str]:
    """Every path of the runs, in their order."""
    return list(dict.fromkeys(path for run in runs for path in run.sweep.paths))


def story(runs: Sequence[Run]) -> list[str]:
    """The paths that a comparison opens with: the two that the story is about where all runs have them, else the first that
    all have, else the first."""
    shared = [path for path in paths_of(runs) if all(path in run.sweep.paths for run in runs)]
    return [path for path in DEFAULT_PATHS if path in shared] or shared[:2] or paths_of(runs)[:2]


def charts(runs: Sequence[Run], paths: Collection[str], of: str) -> dict[str, Figure]:
    """The two charts of one of QUANTITIES, by what a file of each is called."""
    if of == MEMORY:
        return {"memory": memory(runs, paths), "memory-ratio": ratio(runs, paths, MEMORY)}
    return {"latency": latency(runs, paths), "ratio": ratio(runs, paths)}


def latency(runs: Sequence[Run], paths: Collection[str]) -> Figure:
    """Milliseconds of one call against sequence length, log-log, a line for each run and each of `paths`."""
    data, values = _curves(runs, paths, TIME)
    layout = _layout(runs, "Latency of each run", "device ms", sum(t["showlegend"] for t in data))
    if values:
        low, high = (10.0 ** floor(log10(min(values))), 10.0 ** ceil(log10(1.1 * max(values))))
        ticks = max(3, min(round(log10(high / low)) + 1, 5))
        include = {"autorangeoptions": {"include": [low, high]}}
        layout["yaxis"] |= {"type": "log", "nticks": ticks, "tickformat": ",~r", **include}
    else:
        annotate(layout, "no time was measured")
    return {"data": data, "layout": layout}


def memory(runs: Sequence[Run], paths: Collection[str]) -> Figure:
    """Bytes that one call adds above its inputs against sequence length, log-log, a line for each run and each of `paths`."""
    data, values = _curves(runs, paths, MEMORY)
    layout = _layout(runs, "Peak memory of each run", "added by one call", sum(t["showlegend"] for t in data))
    if values:
        first, last = floor(log2(min(values))), ceil(log2(1.1 * max(values)))
        step = ceil((last - first) / SIZE_TICKS)
        ticks = [1 << power for power in range(last, first - step, -step) if power >= 0][::-1]
        span = {"autorangeoptions": {"include": [ticks[0], ticks[-1]]}}
        layout["yaxis"] |= {"type": "log", "tickvals": ticks, "ticktext": [size(tick) for tick in ticks], **span}
    else:
        annotate(layout, "no memory was measured")
    return {"data": data, "layout": layout}


def _curves(runs: Sequence[Run], paths: Collection[str], of: str) -> tuple[list[Trace], list[float]]:
    """A line for each run and each of `paths`, and all values on them."""
    data, values = [], []
    for index, run in enumerate(runs):
        for path in run.sweep.paths if run.sweep.task == TIME else ():
            if path not in paths:
                continue
            points = [run.get(path, seq) for seq in run.sweep.seqs]
            good = [m if m and m.ok and amount(m, of) else None for m in points]
            if not any(good):
                continue
            heights = [m and amount(m, of) for m in good]
            values += [height for height in heights if height]
            bounds = [m.interval_ms if m and of == TIME else None for m in good]
            hover = [_point_words(run, index, m, of) if m else "" for m in good]
            hollow = [bool(m and m.launch_bound and of == TIME) for m in good]
            data += _curve(index, path, run.sweep.seqs, heights, bounds, hover, hollow)
    return data, values


def ratio(runs: Sequence[Run], paths: Collection[str], of: str = TIME) -> Figure:
    """Each other run's time, or memory, ÷ the first's at what both measured of `paths`: above 1 it is the worse."""
    data, ends = [], [1.0]
    for index, run in enumerate(runs[1:], start=1):
        of_run = [r for r in ratios(runs[0], run, of) if r.path in paths]
        for path in dict.fromkeys(r.path for r in of_run):
            found = sorted((r for r in of_run if r.path == path), key=lambda r: r.seq)
            hover = [_ratio_words(r, index) for r in found]
            bounds = [r.interval for r in found]
            seqs, heights = [r.seq for r in found], [r.value for r in found]
            ends += [*heights, *(end for r in found if r.called_out for end in r.interval or ())]
            data += _curve(index, path, seqs, heights, bounds, hover, [bool(r.doubt) for r in found])
    why, title, above = RATIO_WORDS[of]
    hollow = f" · hollow: {why}" if any("marks" in t["uid"] for t in data) else ""
    subtitle = f"{LETTERS[1] if len(runs) == 2 else 'each'} ÷ {LETTERS[0]}, above 1×: {above}{hollow}"
    layout = _layout(runs, title, subtitle, sum(t["showlegend"] for t in data))
    reference_line(layout, 1)
    low, high = min(ends), max(ends)
    if high / low > LINEAR_TO:
        layout["yaxis"] |= {"type": "log", "ticksuffix": "×", "nticks": 6, "tickformat": ",~r"}
        layout["yaxis"] |= {"autorange": False, "range": [log10(low / 1.3), log10(high * 1.3)]}
    else:
        room = max(0.25 * (high - low), 0.02)
        span = {"autorange": False, "range": [low - room, high + room]}
        layout["yaxis"] |= {"ticksuffix": "×", "nticks": 6, "tickformat": ".2f" if high - low < 1 else ".1f", **span}
    if not data:
        annotate(layout, "no path and length that both measured")
    return {"data": data, "layout": layout}


def _curve(
    index: int,
    path: str,
    seqs: Sequence[int],
    heights: Sequence[float | None],
    bounds: Sequence[tuple[float, float] | None],
    hover: list[str],
    hollow: Sequence[bool],
) -> list[Trace]:
    """Band, line, and hollow markers of one path of one run. None breaks a line."""
    name, accent = f"{LETTERS[index]} {path}", color(path)
    common = {"type": "scatter", "legendgroup": name, "name": escape(name)}
    xs, ys, stretch = [], [], []
    for seq, bound in [*zip(seqs, bounds, strict=True), (0, None)]:
        if bound:
            stretch.append((seq, *bound))
        elif stretch:
            xs += [*(seq for seq, _, _ in stretch), *(seq for seq, _, _ in reversed(stretch)), None]
            ys += [*(low for _, low, _ in stretch), *(high for _, _, high in reversed(stretch)), None]
            stretch = []
    band = common | {
        "uid": f"{name}-band", "x": xs or [None], "y": ys or [None], "mode": "lines", "line": {"width": 0},
        "fill": "toself", "fillcolor": accent, "opacity": 0.18, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    symbol = PATH_SYMBOLS.get(path, "circle")
    line = common | {
        "uid": f"{name}-line", "x": list(seqs), "y": list(heights), "mode": "lines+markers", "showlegend": True,
        "line": {"width": LINE_PX, "color": accent, "dash": DASHES[index]}, "connectgaps": False,
        "marker": {"size": MARKER_PX, "color": accent, "symbol": symbol}, "hovertext": hover, "hoverinfo": "text",
    }  # fmt: skip
    empty = [(seq, y, text) for seq, y, text, hole in zip(seqs, heights, hover, hollow, strict=True) if hole and y]
    marks = common | {
        "uid": f"{name}-marks", "x": [seq for seq, _, _ in empty], "y": [y for _, y, _ in empty], "mode": "markers",
        "marker": {"size": MARKER_PX + 2, "color": "var(--attn-page)", "symbol": symbol,
                   "line": {"width": 3, "color": accent}},
        "hovertext": [text for _, _, text in empty], "hoverinfo": "text", "showlegend": False,
    }  # fmt: skip
    return [band, line, marks] if empty else [band, line]


def _layout(runs: Sequence[Run], title: str, subtitle: str, entries: int) -> Layout:
    seqs = sorted({seq for run in runs for seq in run.sweep.seqs})
    every = ceil(len(seqs) / LABELS)
    shown = [seq for i, seq in enumerate(reversed(seqs)) if i % every == 0]
    columns = min(max(entries, 2), LEGEND_COLUMNS)
    marks: dict[str, list[str]] = {}
    for letter, run in zip(LETTERS, runs, strict=False):
        marks.setdefault(run.mark, []).append(letter)
    said = [f"{', '.join(letters)}: {escape(mark)}" for mark, letters in marks.items() if mark]
    between = " · " if len(" · ".join(said)) <= ONE_LINE else "<br>"
    text = "sequence length" + (f"<br>{between.join(said)}" if said else "")
    return frame(title, subtitle, LEGEND_ROW_PX * ceil(max(entries, 1) / columns)) | {
        "meta": {"made_for_px": MADE_FOR_PX},
        "uirevision": ",".join(escape(run.id) for run in runs),
        "legend": {
            "orientation": "h", "tracegroupgap": 0, "entrywidthmode": "fraction", "entrywidth": 0.96 / columns,
            "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "xaxis": AXIS | {
            "type": "log", "range": [log10(seqs[0] / 1.3), log10(seqs[-1] * 1.3)], "tickvals": shown,
            "ticktext": [seq_text(seq) for seq in shown], "tickangle": 0, "title": {"text": text, "font": {"size": TEXT_PX}},
        },
        "yaxis": AXIS | {"autorange": True},
    }  # fmt: skip


def _point_words(run: Run, index: int, m: Measurement, of: str) -> str:
    between = f" ({ms(m.interval_ms[0])} to {ms(m.interval_ms[1])})" if m.interval_ms and of == TIME else ""
    device = run.device.name if run.device else ""
    lines = [f"<b>{LETTERS[index]} {escape(m.path)}</b> at {m.seq:,}", f"{_figure(m, of)}{between}"]
    return "<br>".join([*lines, *(escape(text) for text in (m.provider, device, run.mark) if text)])


def _ratio_words(r: Ratio, index: int) -> str:
    between = f" ({r.interval[0]:.3f} to {r.interval[1]:.3f})" if r.interval else ""
    head = f"<b>{LETTERS[index]} ÷ {LETTERS[0]}, {escape(r.path)}</b> at {r.seq:,}"
    divided = f"{_figure(r.other, r.of)} ÷ {_figure(r.reference, r.of)}"
    return "<br>".join([head, f"{r.value:.3f}×{between}", divided, escape(r.words)])


def _figure(m: Measurement, of: str) -> str:
    return size(m.peak_bytes) if of == MEMORY else ms(m.device_ms)
