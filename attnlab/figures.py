"""Points → charts: a Run becomes four figures over the sequence length, `latency`, `memory`, `speedup`, `efficiency`.

Here stands what each of them draws: which number of a point, how high its axis reaches, and its words, in the chart and when
a point is pointed at. How they are drawn, all four alike, is in attnlab.chart_parts. No speed-up uses a `suspect` number.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import log10

from attnlab import chart_parts, cost
from attnlab.chart_style import EDGE_AXIS, SYMBOLS, TEXT_PX, Figure, Trace, annotate, color, decades, reference_line
from attnlab.claims import CLAIMS
from attnlab.hardware import dense_peak_tflops
from attnlab.measurement import STATUS_WORDS, Measurement
from attnlab.run import Run
from attnlab.summary import BASELINE, challenger
from attnlab.units import ms, size, times

NUMBERED = ("ok", "suspect")  # the statuses that come with a number

# Three clocks of one call: on the device, as one replay of a CUDA graph, and as a caller waits. Only the first has an
# interval, and only the first is in the sentence.
CLOCKS: dict[str, Callable[[Measurement], float | None]] = {
    "device": lambda m: m.device_ms,
    "graph": lambda m: m.graph_ms,
    "wall": lambda m: m.wall_ms,
}
COUNTS = ("exact", "dense")  # the pairs that the mask leaves; all of them
LABEL_SHARE = 0.15  # of a chart's height: lower than that, a label below a point would lie on the numbers of the axis


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
        data += chart_parts.curve(run, path, points, value, interval, hover, hollow)
        data.append(chart_parts.growth_line(run, path, "time" if clock == "device" else ""))
        numbered = [m is not None and m.status in NUMBERED and bool(value(m)) for m in points]
        values += [value(m) for good, m in zip(numbered, points, strict=True) if good]
        without = [(m, text) for good, m, text in zip(numbered, points, hover, strict=True) if m and not good]
        heights = [0.965 - 0.065 * row] * len(without)
        edge.append(chart_parts.marks(run, path, "edge", without, heights) | {"yaxis": "y2"})
    bound = "○ launch-bound" if any(m.ok and m.launch_bound for m in run.measurements) else ""
    layout = chart_parts.layout_of(run, "Latency", clock_words(run, clock))
    lacking = f"at the top: no {clock} time" if any(m.ok and not value(m) for m in run.measurements) else ""
    corner = {"x": 1, "xanchor": "right", "y": 0.01, "yanchor": "bottom", "align": "right"}  # free where curves grow
    annotate(layout, "<br>".join(filter(None, [lacking, bound])), corner)
    low, high = 0.01, 100.0
    if values:
        marked = any(trace["y"] != [None] for trace in edge)
        low, high = decades(values, headroom=2.5 if marked else 1.1)
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
        data += chart_parts.curve(run, path, points, lambda m: m.peak_bytes, lambda m: None, hover)
        values += [m.peak_bytes for m in points if m and m.status in NUMBERED and m.peak_bytes]
        full = [(m, text) for m, text in zip(points, hover, strict=True) if m and m.status == "oom"]
        # One that was really tried needed at least what the device holds.
        heights = [m.predicted_bytes or capacity or None for m, _ in full]
        values += [height for height in heights if height]
        data.append(chart_parts.marks(run, path, "oom", full, heights, side="top"))
        data.append(chart_parts.growth_line(run, path, "memory"))
    # With the capacity known the axis spans five decades from the start, so that the line stays where it is.
    low, high = decades([*values, capacity, capacity / 1e5] if capacity else values or [2**20, 2**30], headroom=2)
    layout = chart_parts.layout_of(run, "Peak memory", "added by one call")
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
        band, line, marks = chart_parts.curve(
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
    published = [chart_parts.published(run, claim) for claim in papers]
    data[:0] = published  # below the curves
    top = max([top, *(1.1 * y for trace in published for y in trace["y"])])
    if main:
        data += chart_parts.crossover_lines(run, main, shown=clock == "device")
    ratio = f"{BASELINE} ÷ {others[0] if len(others) == 1 else 'path'}"
    layout = chart_parts.layout_of(run, "Speed-up", clock_words(run, clock))
    falls = any(_falls(trace["y"]) for trace in data if trace.get("uid") == f"{main}-line")
    side = {"x": 0.99, "xanchor": "right"} if falls else {"x": 0.01, "xanchor": "left"}
    annotate(layout, ratio, {**side, "y": 0.99, "yanchor": "top"})
    for claim in papers:
        place = {"x": 0.99, "xanchor": "right", "yref": "y", "y": claim.published[0], "yanchor": "top"}
        annotate(layout, chart_parts.published_words(claim), place)
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
        data += chart_parts.curve(
            run, path, points, lambda m, r=rates: r.get(m.seq), lambda m, b=bounds: b.get(m.seq), hover, hollow
        )
        above = [(m, text) for m, text in zip(points, hover, strict=True) if m and peak and rates.get(m.seq, 0) > peak]
        flags = chart_parts.marks(run, path, "above", above, [rates[m.seq] for m, _ in above])
        if above:
            flags["marker"]["symbol"], flags["marker"]["color"] = SYMBOLS["suspect"], color(path)
            flags["text"] = [f"{rates[m.seq] / peak:,.0%} of the peak" for m, _ in above]
            flags["textposition"] = ["top left" if m.seq > run.sweep.seqs[0] else "top right" for m, _ in above]
        data.append(flags)
        top += [1.08 * rates[m.seq] for m in points if m and m.status in NUMBERED and m.seq in rates]
    papers = [claim for claim in CLAIMS if claim.matches(run)]
    top += [1.12 * claim.published[0] for claim in papers if len(claim.published) == 1]
    layout = chart_parts.layout_of(run, "Efficiency", f"TFLOP/s, {count} count", legend_columns=1)
    include = {"autorangeoptions": {"include": [0, max(top, default=1.0)]}}
    layout["yaxis"] |= {"rangemode": "tozero", "nticks": 6, "tickformat": ",~r", **include}
    data += [chart_parts.published(run, claim) for claim in papers if len(claim.published) == 1]
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


def _points(run: Run, path: str) -> list[Measurement | None]:
    """One entry for each sequence length of the sweep."""
    return [run.get(path, seq) for seq in run.sweep.seqs]


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
        beside = [
            c for c in chosen if abs(run.sweep.seqs.index(seq) - run.sweep.seqs.index(c)) < chart_parts.label_every(run)
        ]
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
