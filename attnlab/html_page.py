"""A run as one HTML file: its sentence, its environment, the interactive charts and every point. It opens offline.

plotly.js stands in the file; nothing is fetched. The figures of attnlab.figures name their colours by token, and their sizes
for a chart of 400 px; here both are settled for good, in a theme (light unless told otherwise). Whatever a run says of
itself is text: escaped in HTML, and inside the scripts as JSON without a single "<".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnlab import exactness_figure, figures, summary, table, tabular
from attnlab.figures import TOKENS, Figure
from attnlab.run import Run
from attnlab.sweep import TIME

PLOTLY_FOLDER = Path(find_spec("plotly").submodule_search_locations[0]) / "package_data"
PLOTLY = PLOTLY_FOLDER / "plotly.min.js"
WIDTH_PX, HEIGHT_PX = 900, 520  # of a chart
SCALES = (0.82, 1.2)  # of its sizes, at the least and at the most
SIZES = {"size", "width", "t", "r", "b", "l"}
CONFIG = {"displaylogo": False, "responsive": True, "doubleClick": "reset"}
# No script but those of the file, and no request at all: what a hostile run could smuggle in would reach nobody.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
STYLE = """
body { font-family: system-ui, sans-serif; max-width: 1880px; margin: 0 auto; padding: 1.5rem; line-height: 1.4;
       color: var(--text); background: var(--page); }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 1.5rem 0 .5rem; } p { margin: .3rem 0; }
.quiet { color: var(--quiet); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 620px), 1fr)); gap: 1rem; margin: 1rem 0; }
.chart { height: 520px; min-width: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--grid); text-align: left;
         vertical-align: top; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } td.long { white-space: normal; min-width: 22rem; }
"""
DRAW = """
for (const chart of JSON.parse(document.getElementById("figures").textContent))
  Plotly.newPlot(chart.id, chart.data, {...chart.layout, autosize: true}, chart.config);
"""


def charts(run: Run) -> dict[str, Figure]:
    """The charts of a run, by name; none for a look at the answers that is not drawn."""
    if run.sweep.task == "exactness":
        return {"exactness": exactness_figure.figure([run])}
    if run.sweep.task != TIME:
        return {}
    return {
        "latency": figures.latency(run),
        "memory": figures.memory(run),
        "speedup": figures.speedup(run),
        "efficiency": figures.efficiency(run),
    }


def settled(figure: Figure, theme: str = "light", width_px: int = WIDTH_PX) -> Figure:
    """The figure in the colours of a theme and with the sizes of a chart so wide; on the theme's page colour."""
    made_for_px = figure["layout"].get("meta", {}).get("made_for_px", 400)
    scale = min(SCALES[1], max(SCALES[0], width_px / made_for_px))
    page = TOKENS[theme]["var(--attn-page)"]
    whole = _settled(figure, TOKENS[theme], scale)
    return {"data": whole["data"], "layout": whole["layout"] | {"paper_bgcolor": page, "plot_bgcolor": page}}


def _settled(value: Any, colors: Mapping[str, str], scale: float, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _settled(item, colors, scale, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settled(item, colors, scale) for item in value]
    if isinstance(value, str):
        return colors.get(value, value)
    return value * scale if key in SIZES and type(value) in (int, float) else value


def script_json(data: Any) -> str:
    """Strict JSON that can stand inside a script element: nothing in it ends one, or begins a comment."""
    return json.dumps(data, allow_nan=False, ensure_ascii=True).replace("<", "\\u003c")


def page_of(run: Run, *, theme: str = "light", title: str = "") -> str:
    """The run as one HTML document. `title` is what people call it."""
    said = summary.sentence(run)
    facts = tabular.facts(run)
    names = {"text": "text", "quiet": "quiet", "grid": "grid", "page": "page"}
    colors = "".join(f"--{name}: {TOKENS[theme][f'var(--attn-{token})']};" for name, token in names.items())
    drawn = [
        {"id": f"chart-{name}", "config": CONFIG, **settled(figure, theme)} for name, figure in charts(run).items()
    ]
    places = "".join(f'<div class="chart" id="{chart["id"]}"></div>' for chart in drawn)
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(title or said)}</title>',
            f"<style>:root {{ {colors} color-scheme: {theme}; }}{STYLE}</style></head><body>",
            f"<h1>{escape(said)}</h1>",
            f"<p>{escape(title)}</p>" if title else "",
            f'<p class="quiet">{escape(" · ".join(facts))}</p>',
            f'<div class="charts">{places}</div>' if drawn else "",
            _points(run),
            f'<script type="application/json" id="figures">{script_json(drawn)}</script>',
            f"<script>{PLOTLY.read_text(encoding='utf-8')}</script><script>{DRAW}</script>" if drawn else "",
            "</body></html>\n",
        ]
    )


def _points(run: Run) -> str:
    """Every point as a table, or what was found where that is not a time."""
    if run.sweep.task != TIME:
        lines = "\n".join(table.rows(run))
        return f'<h2>What was found</h2><div class="wide"><pre>{escape(lines)}</pre></div>'
    columns = ("path", "seq_kv", "status", "device_ms", "device_ms_low", "device_ms_high", "samples", "graph_ms", "wall_ms",
               "first_call_s", "peak_bytes", "clock_mhz", "power_w", "provider", "reason", "notes")  # fmt: skip
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = "".join(f"<tr>{''.join(_cell(name, row[name]) for name in columns)}</tr>" for row in tabular.rows(run))
    return f'<h2>Every point</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, str):
        kind = ' class="long"' if name in ("reason", "notes") and value else ""
        return f"<td{kind}>{escape(value)}</td>"
    return f'<td class="number">{value:,.6g}</td>' if isinstance(value, float) else f'<td class="number">{value:,}</td>'


def stills(drawn: Mapping[str, Figure], theme: str = "light") -> dict[str, Figure]:
    """Figures for pictures: as the chart opens, without what only a click would show."""
    return {
        name: {**figure, "data": [trace for trace in figure["data"] if trace.get("visible") != "legendonly"]}
        for name, figure in ((name, settled(figure, theme)) for name, figure in drawn.items())
    }


def printing_page(drawn: Mapping[str, Figure], formats: Sequence[str], scale: int) -> str:
    """A page that draws each figure as a picture and leaves them in its text, as {"name.format": data URL}: what a browser
    without a window is asked for."""
    wanted = [
        {"name": f"{name}.{kind}", "figure": {"data": figure["data"], "layout": figure["layout"]},
         "how": {"format": kind, "width": WIDTH_PX, "height": HEIGHT_PX, "scale": scale if kind == "png" else 1}}
        for name, figure in drawn.items() for kind in formats
    ]  # fmt: skip
    return (
        f'<!doctype html><meta charset="utf-8"><pre id="pictures"></pre>'
        f'<script type="application/json" id="wanted">{script_json(wanted)}</script>'
        f'<script src="{PLOTLY.as_uri()}"></script><script>'
        "(async () => { const made = {};"
        ' for (const one of JSON.parse(document.getElementById("wanted").textContent))'
        "   made[one.name] = await Plotly.toImage(one.figure, one.how);"
        ' document.getElementById("pictures").textContent = JSON.stringify(made); })();</script>'
    )
