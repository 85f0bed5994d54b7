"""A Plotly chart that keeps its zoom and its hidden series while new data arrives; st.plotly_chart mounts it anew.

A st.components.v2 component (chart.js) that calls Plotly.react on a lasting <div>; the figure travels with each update.
plotly.js comes from the installed plotly package, over HTTP and once a page load: text that v2 takes inline would be
sent again with every update, all 4.8 MB of it. The route is that of a declared v1 component that is never mounted, the
public way to serve a folder that lies outside the app.
"""

from __future__ import annotations

import inspect
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v1 import declare_component

from attnlab.figures import TOKENS

PLOTLY_FOLDER = Path(find_spec("plotly").submodule_search_locations[0]) / "package_data"
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


def plotly_chart(figure: dict[str, Any], *, key: str, height: str, alt: str, listens: bool = False) -> None:
    """Draws a figure, as wide as its container; `height` is a CSS length, such as "max(380px, 44vh)".

    The same `key` in a later run updates the chart in place. Zoom and hidden series last as long as the figure's
    `layout.uirevision`; `alt` is what a screen reader says. With `listens` a click on a point of any chart of the page
    runs this chart's fragment again, and `new_click` says which point.
    """
    # Both are declared in every run, because a new server knows nothing of this module's import.
    declare_component("plotly", path=PLOTLY_FOLDER)
    draw = st.components.v2.component("attnlab_chart", js=_JS, isolate_styles=False)
    told = {"on_point_change": lambda: None} if listens else {}
    # A list: the values of a dict are searched for dataframes, with pandas imported for it.
    draw(key=key, data=[figure, height, alt, listens], **told)


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
