"""A Plotly chart that keeps its zoom and its hidden series while new data arrives; st.plotly_chart mounts it anew.

A st.components.v2 component (chart.js) that calls Plotly.react on a lasting <div>; the figure travels with each update, as
the JSON that it is in any case, so that the browser sees at once when nothing has changed and many tabs share one text.
plotly.js comes from the installed plotly package, over HTTP and once a page load: text that v2 takes inline would be
sent again with every update, all 4.8 MB of it. The route is that of a declared v1 component that is never mounted, the
public way to serve a folder that lies outside the app.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit.components.v1 import declare_component

from attnlab.chart_style import TOKENS, Figure
from attnlab.installed import plotly_js
from attnlab.run import Run

PLOTLY_PATH = f"component/{__name__}.plotly/plotly.min.js"
MIN_WIDTH_PX = 240  # three beside the open sidebar of a small projector
MIN_WIDTH_MORE_PX = 360  # with more than two paths in the legend

_JS = "\n".join(
    [
        f"const TOKENS = {json.dumps(TOKENS, separators=(',', ':'))};",
        f"const PLOTLY_PATH = {json.dumps(PLOTLY_PATH)};",
        Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
    ]
)


# declare_component asks inspect which module calls it, and of two threads that ask at once for the first time one is told:
# none. So the answer stands there before the first visitors come, who may be many.
inspect.modulesbyfile[inspect.getabsfile(sys.modules[__name__])] = __name__


def slots(count: int, paths: int) -> list[Any]:
    """Places for `count` charts of so many paths side by side. They wrap where the screen is narrow, except on
    Python 3.10: the last Streamlit for it, 1.65, has no grid."""
    if not hasattr(st, "grid"):
        return list(st.columns(count)) if paths <= 2 else [*st.columns(2), *st.columns(2)][:count]
    grid = st.grid(count, min_column_width=MIN_WIDTH_PX if paths <= 2 else MIN_WIDTH_MORE_PX)
    return [grid.cell() for _ in range(count)]


@functools.lru_cache(maxsize=1)
def _declared(server: runtime.Runtime) -> Callable[..., Any]:
    """The component, once a server: another one in the same process, as tests have it, knows nothing of an earlier one's."""
    declare_component("plotly", path=plotly_js().parent)
    return st.components.v2.component("attnlab_chart", js=_JS, isolate_styles=False)


class _Same:
    """A run as a key: equal to itself alone. Runs are never changed, and to compare all of their points takes longer."""

    def __init__(self, run: Run):
        self.run = run

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.run is self.run

    def __hash__(self) -> int:
        return id(self.run)


@functools.lru_cache(maxsize=32)
def _text(make: Callable[..., Figure], same: _Same, *how: Any) -> str:
    return json.dumps(make(same.run, *how))


def once(make: Callable[..., Figure], run: Run, *how: Any) -> str:
    """The JSON of make(run, *how), made once for all tabs that look at the run."""
    return _text(make, _Same(run), *how)


def plotly_chart(figure: Figure | str, *, key: str, height: str, alt: str, listens: bool = False) -> None:
    """Draws a figure, or its JSON, as wide as its container; `height` is a CSS length, such as "max(380px, 44vh)".

    The same `key` in a later run updates the chart in place. Zoom and hidden series last as long as the figure's
    `layout.uirevision`; `alt` is what a screen reader says. With `listens` a click on a point of any chart of the page
    runs this chart's fragment again, and `new_click` says which point.
    """
    draw = _declared(runtime.get_instance())
    told = {"on_point_change": lambda: None} if listens else {}
    text = figure if isinstance(figure, str) else json.dumps(figure)
    # A list: the values of a dict are searched for dataframes, with pandas imported for it.
    draw(key=key, data=[text, height, alt, listens], **told)


def new_click(key: str) -> tuple[str, int] | None:
    """(path, sequence length) of a click that the chart `key` has heard since this was asked last, as the browser says it.

    Read, and not called back: while other fragments run, Streamlit delivers a state in a run that calls nobody, and an old
    one after a new one. Hence also the time in it.
    """
    point, newest = st.session_state.get(key, {}).get("point"), f"_newest_click_{key}"
    if not isinstance(point, list) or [type(part) for part in point] != [str, int, int]:
        return None
    path, seq, clicked_at_ms = point
    if clicked_at_ms <= st.session_state.get(newest, 0):
        return None
    st.session_state[newest] = clicked_at_ms
    return path, seq
