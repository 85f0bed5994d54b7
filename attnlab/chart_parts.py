"""What the charts of a run are made of: the axis of sequence lengths, the curves of its paths, and what stands beside them.

- Every path owns the same traces from the first moment on, empty or not, with a fixed `uid`: a series that a viewer
  hid stays hidden while points arrive, and nothing has to be matched by position.
- Only an `ok` point is a number. A line stops where a number is missing and starts anew behind it; what has no number
  stands as a mark, never as 0. A `suspect` number is a hollow warning that no line touches.
- What stands for a point says whose: the trace's `meta` is its path, x its sequence length. A click is read from these.
- `uirevision` depends on the sequence lengths alone: zoom survives new points and new runs of the same shape, and
  starts afresh when the x axis becomes another one.
- What a paper says of the run's very setting stands beside it in grey, from attnlab.claims with its source.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from html import escape
from itertools import groupby
from math import ceil, log10, sqrt

from attnlab.chart_style import (
    AXIS,
    LEGEND_ROW_PX,
    LINE_PX,
    MARKER_PX,
    PATH_SYMBOLS,
    SYMBOLS,
    TEXT_PX,
    Layout,
    Trace,
    annotate,
    color,
    frame,
    seq_text,
)
from attnlab.claims import Claim
from attnlab.growth import crossover, growth
from attnlab.measurement import STATUS_WORDS, Measurement
from attnlab.run import Run
from attnlab.summary import BASELINE, challenger
from attnlab.sweep import DEFAULT_PATHS


def layout_of(run: Run, title: str, subtitle: str, legend_columns: int = 0) -> Layout:
    """What the charts share. The x axis is the sweep's from the start, so nothing jumps as points arrive."""
    seqs = run.sweep.seqs
    step = (seqs[-1] / seqs[0]) ** (1 / (len(seqs) - 1)) if len(seqs) > 1 else 2
    every = label_every(run)
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


def label_every(run: Run) -> int:
    """So many points apart labels stand, for six of them to fit side by side in the narrowest column."""
    return ceil(len(run.sweep.seqs) / 6)


def _legend_columns(run: Run) -> int:
    return 1 if len(run.sweep.paths) <= 2 else 2


def _path_label(run: Run, path: str) -> str:
    """The path's name; `flash` with what it chose, once that is known: "flash (flash-attn-4 4.0.0b36)".

    Beside more than one other path the legend has no room for it, and the hover says it alone.
    """
    chosen = [m.provider for m in run.measurements if m.path == path == "flash" and m.provider]
    return f"flash ({chosen[-1].split(' · ')[0]})" if chosen and _legend_columns(run) == 1 else path


def opens_with(paths: Sequence[str], recorded: bool) -> tuple[str, ...]:
    """The paths that charts show before anybody clicks in a legend: of a recorded run the two that the story is about; in a
    measured one the visitor has chosen the paths."""
    return DEFAULT_PATHS if recorded and set(DEFAULT_PATHS) <= set(paths) else tuple(paths)


def visible(path: str, paths: Sequence[str], recorded: bool) -> bool | str:
    """Plotly's word for whether a path is shown or waits for a click in the legend."""
    return True if path in opens_with(paths, recorded) else "legendonly"


def curve(
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
        "name": escape(_path_label(run, path)),
        "visible": visible(path, run.sweep.paths, run.recorded),
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
    return [band, line, marks(run, path, "marks", chosen, [value(m) for m, _ in chosen])]


def marks(
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
        "visible": visible(path, run.sweep.paths, run.recorded),
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


def growth_line(run: Run, path: str, quantity: str) -> Trace:
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
        "visible": visible(path, run.sweep.paths, run.recorded),
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


def crossover_lines(run: Run, path: str, shown: bool) -> list[Trace]:
    """Where the path overtakes standard, as a thin line with its interval as a band, from the floor to the top."""
    found = crossover(run, path) if shown else None
    at = found.seq if found and found.seq else None
    low, high = (found.low, found.high) if at and found.low and found.high else (None, None)
    common = {
        "type": "scatter",
        "legendgroup": path,
        "visible": visible(path, run.sweep.paths, run.recorded),
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


def published(run: Run, claim: Claim) -> Trace:
    """What a paper says of the run's own setting, in grey: a mark for a rate, a band for a range of speed-ups."""
    seqs = [seq for seq in claim.seqs if seq in run.sweep.seqs]
    said, unit = published_words(claim), " TFLOP/s" if len(claim.published) == 1 else ""
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


def published_words(claim: Claim) -> str:
    """What a paper published, as it stands in a chart: "FlashAttention-2, published: 203"."""
    unit = "" if len(claim.published) == 1 else "×"
    return f"{claim.paper}, published: {' to '.join(f'{value:,g}{unit}' for value in claim.published)}"
