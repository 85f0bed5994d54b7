"""What every chart shares, whatever it shows: the colour and the marker of a path, sizes, the frame, quiet words and lines.

A chart is a plain Plotly dict, {"data": [...], "layout": {...}}, ready to be sent as JSON.

- Colours are tokens, such as "var(--attn-flash)". The chart component resolves them in the browser by the theme the
  viewer looks at, so switching light and dark needs no rerun.
- A path has the same colour and the same marker everywhere.
- Sizes are those of a chart of 400 px; the layout's `meta` says so where a chart is made for another width.
- Dicts, not plotly.graph_objects: its import and its validation cost more than all the rest, twice a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

Trace = dict[str, Any]
Layout = dict[str, Any]
Figure = dict[str, Any]  # {"data": [Trace, …], "layout": Layout}

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


def color(path: str) -> str:
    """The token of a path's colour; a path without one is drawn as text is."""
    return f"var(--attn-{path})" if path in PATH_COLORS else "var(--attn-text)"


def seq_text(seq: int) -> str:
    """A tick: 128 → "128", 4096 → "4K", 1000 → "1,000"."""
    return f"{seq // 1024}K" if seq % 1024 == 0 else f"{seq:,}"


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


def annotate(layout: Layout, text: str, where: dict[str, Any] | None = None) -> None:
    """One quiet line, in the middle of an empty chart unless told otherwise."""
    place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.6} | (where or {})
    font = {"size": TEXT_PX, "color": "var(--attn-quiet)"}
    layout["annotations"].append(place | {"showarrow": False, "text": text, "font": font})


def reference_line(layout: Layout, y: float) -> None:
    """A dashed reference line from edge to edge."""
    line = {"color": "var(--attn-quiet)", "width": 2, "dash": "dash"}
    layout["shapes"].append(
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line, "layer": "below"}
    )


def decades(values: Sequence[float], footroom: float = 1.0, headroom: float = 1.1) -> tuple[float, float]:
    """The powers of ten around the values, so that an axis moves in few large steps while points arrive. A value so many times
    larger than the smallest power, or smaller than the largest, still stands on its axis."""
    return 10.0 ** floor(log10(min(values) / footroom)), 10.0 ** ceil(log10(max(values) * headroom))
