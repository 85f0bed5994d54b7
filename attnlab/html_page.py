"""A run, or several side by side, as one HTML file: the sentence, the environment, the interactive charts, every point. It
opens offline.

plotly.js stands in the file; nothing is fetched. The figures of attnlab.figures name their colours by token, and their sizes
for a chart of 400 px; here both are settled for good, in a theme (light unless told otherwise). Whatever a run says of
itself is text: escaped in HTML, and inside the scripts as JSON without a single "<".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from attnlab import comparison, exactness_figure, figures, summary, table, tabular
from attnlab.chart_style import CHROME, TOKENS, Figure
from attnlab.installed import plotly_js
from attnlab.run import Run
from attnlab.sweep import TIME

WIDTH_PX, HEIGHT_PX = 900, 520  # of a chart
SCALES = (0.82, 1.2)  # of its sizes, at the least and at the most
LONG = ' class="long"'
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


def charts_of(run: Run, paths: Collection[str]) -> dict[str, Figure]:
    """The charts of some of its paths, all of them shown: for who has chosen them."""
    drawn = charts(only(run, paths)) if paths else {}
    for figure in drawn.values():
        for trace in figure["data"]:
            trace["visible"] = True
    return drawn


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
    below = [("Every point", _points(run))] if run.sweep.task == TIME else [("What was found", _lines(table.rows(run)))]
    return document(summary.sentence(run), [title, " · ".join(tabular.facts(run))], charts(run), below, theme=theme)


def comparison_of(
    runs: Sequence[Run], names: Sequence[str], drawn: Mapping[str, Figure], *, theme: str = "light"
) -> str:
    """Runs side by side, with what is drawn of them, as one HTML document; `names` are what people call them."""
    letters = comparison.LETTERS[: len(runs)]
    differ = [["", *letters], *([d.what, *d.values] for d in comparison.differences(runs))]
    told = [callout.text for of in comparison.QUANTITIES for callout in comparison.callouts(runs, of)]
    called = [f"{letter}: {name}" for letter, name in zip(letters, names, strict=True)]
    below = [
        ("What differs", _table(differ) if len(differ) > 1 else "<p>Nothing that is recorded.</p>"),
        ("Changes", _lines(told or ["none"])),
        *((f"The {of}, point by point", _table(tabular.ratio_rows(runs, of))) for of in comparison.QUANTITIES),
    ]
    return document(comparison.sentence(runs), called, drawn, below, theme=theme)


def document(
    heading: str,
    lines: Sequence[str],
    drawn: Mapping[str, Figure],
    below: Sequence[tuple[str, str]],
    *,
    theme: str = "light",
) -> str:
    """`heading` and `lines` are text. `below`: (title, markup that was made here) of what stands under the charts."""
    colors = "".join(f"--{name}: {TOKENS[theme][f'var(--attn-{name})']};" for name in CHROME)
    placed = [{"id": f"chart-{name}", "config": CONFIG, **settled(figure, theme)} for name, figure in drawn.items()]
    places = "".join(f'<div class="chart" id="{chart["id"]}"></div>' for chart in placed)
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(heading)}</title>',
        f"<style>:root {{ {colors} color-scheme: {theme}; }}{STYLE}</style></head><body>",
        f"<h1>{escape(heading)}</h1>",
        *(f'<p class="quiet">{escape(line)}</p>' for line in lines if line),
        f'<div class="charts">{places}</div>' if placed else "",
        *(f'<h2>{escape(title)}</h2><div class="wide">{markup}</div>' for title, markup in below),
        f'<script type="application/json" id="figures">{script_json(placed)}</script>',
        f"<script>{plotly_js().read_text(encoding='utf-8')}</script><script>{DRAW}</script>" if placed else "",
        "</body></html>\n",
    ]
    return "".join(parts)


def _points(run: Run) -> str:
    columns = ("path", "seq_kv", "status", "device_ms", "device_ms_low", "device_ms_high", "samples", "graph_ms", "wall_ms",
               "first_call_s", "peak_bytes", "clock_mhz", "power_w", "provider", "reason", "notes")  # fmt: skip
    reached = replace(run, measurements=run.reached)
    left = f"<p>{escape(summary.unreached(run))}</p>" if len(reached.measurements) < len(run.measurements) else ""
    return _table([columns, *([row[name] for name in columns] for row in tabular.rows(reached))]) + left


def _table(rows: Sequence[Sequence[Any]]) -> str:
    """The first row is the head."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[1:])
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, str):
        return f"<td{LONG if len(value) > 40 else ''}>{escape(value)}</td>"
    return f'<td class="number">{value:,.6g}</td>' if isinstance(value, float) else f'<td class="number">{value:,}</td>'


def _lines(lines: Sequence[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def only(run: Run, paths: Collection[str]) -> Run:
    """The run without its other paths: a picture has no legend to click on."""
    kept = tuple(path for path in run.sweep.paths if path in paths)
    measured = tuple(m for m in run.measurements if m.path in kept)
    return replace(run, sweep=replace(run.sweep, paths=kept), measurements=measured)


def shown_only(figure: Figure) -> Figure:
    """Without what only a click in the legend would show."""
    return {**figure, "data": [trace for trace in figure["data"] if trace.get("visible") != "legendonly"]}


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
        f'<script src="{plotly_js().as_uri()}"></script><script>'
        "(async () => { const made = {};"
        ' for (const one of JSON.parse(document.getElementById("wanted").textContent))'
        "   made[one.name] = await Plotly.toImage(one.figure, one.how);"
        ' document.getElementById("pictures").textContent = JSON.stringify(made); })();</script>'
    )
