"""Online softmax for a hall: the weights of each block of keys as bars, and what the next block does to those before it.

As in attnlab.chart_style a chart is a plain Plotly dict with colours as tokens; sizes are those of the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from attnlab.chart_style import Figure, Trace, frame
from attnlab.online_softmax import Block, number
from attnlab.stage_figure import GROWS_TO, LABEL_PX, MADE_FOR_PX, TEXT_PX

GAP = 0.07  # between two blocks, of the width
TOP = 1.42  # of the y axis; a weight is at most 1


def figure(blocks: Sequence[Block], shown: int) -> Figure:
    """One panel a block, the first `shown` of `blocks` filled; a panel is as wide as the keys seen so far."""
    seen = [block.first + len(block.scores) for block in blocks]
    unit = (1 - GAP * (len(blocks) - 1)) / sum(seen)
    layout = frame("", "") | {
        "meta": {"made_for_px": MADE_FOR_PX, "grows_to": GROWS_TO},
        "uirevision": f"softmax {len(blocks)}",
        "barmode": "overlay",
        "bargap": 0.25,
        "showlegend": False,
    }
    layout["margin"] = {"l": 12, "r": 12, "t": 6, "b": 8}
    data: list[Trace] = []
    left = 0.0
    for place, block in enumerate(blocks):
        width = unit * seen[place]
        axis = str(place + 1) if place else ""
        there = place < shown
        keys = list(range(1, seen[place] + 1))
        layout[f"xaxis{axis}"] = {
            "domain": [left, left + width], "tickvals": keys, "ticktext": [f"s<sub>{key}</sub>" for key in keys],
            "tickfont": {"size": TEXT_PX}, "range": [0.4, seen[place] + 0.6], "fixedrange": True, "zeroline": False,
            "anchor": f"y{axis}", "automargin": True,
            "title": {"text": _sums(block) if there else "", "font": {"size": TEXT_PX + 2}},
        }  # fmt: skip
        layout[f"yaxis{axis}"] = {
            "range": [0, TOP], "visible": False, "fixedrange": True, "anchor": f"x{axis}", "domain": [0, 1],
        }  # fmt: skip
        before = [score for earlier in blocks[:place] for score in earlier.scores]
        old = [exp(score - block.m_old) for score in before]
        data.append(_bars(f"old-{place}", axis, keys, old if there else [], "var(--attn-quiet)", 0.3))
        shrunk = [weight * block.rescale for weight in old]
        data.append(_bars(f"kept-{place}", axis, keys, shrunk if there else [], "var(--attn-standard)", 1))
        new = [None] * len(before) + list(block.p)
        data.append(_bars(f"new-{place}", axis, keys, new if there else [], "var(--attn-flash)", 1))
        heading = f"<b>Block {place + 1}: max {number(block.m, 3)}</b>" if there else f"Block {place + 1}"
        layout["annotations"].append(_text(heading, left, 1.0, LABEL_PX, "var(--attn-text)"))
        if before and there:
            said = f"what came before × {number(block.rescale, 2)}"
            layout["annotations"].append(_text(said, left + 0.01, 0.8, TEXT_PX + 2, "var(--attn-standard)"))
        left += width + GAP
    return {"data": data, "layout": layout}


def _sums(block: Block) -> str:
    return f"sum {number(block.l, 3)} · answer so far <b>{number(block.answer, 4)}</b>"


def _bars(
    uid: str, axis: str, keys: Sequence[int], weights: Sequence[float | None], color: str, opacity: float
) -> Trace:
    return {
        "type": "bar", "uid": uid, "x": list(keys[: len(weights)]) or [None], "y": list(weights) or [None],
        "xaxis": f"x{axis}", "yaxis": f"y{axis}", "marker": {"color": color, "opacity": opacity}, "showlegend": False,
        "hoverinfo": "y",
    }  # fmt: skip


def _text(words: str, x: float, y: float, size: float, color: str) -> dict:
    return {
        "xref": "paper", "yref": "paper", "x": x, "y": y, "xanchor": "left", "yanchor": "top", "showarrow": False,
        "text": words, "font": {"size": size, "color": color},
    }  # fmt: skip
