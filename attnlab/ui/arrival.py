"""Whether the browser has drawn the page: a st.components.v2 component (arrival.js) that says so, once for each visit.

Until then nothing of the page runs by itself. The message of a timer says which page the browser believes to show, and in a
slow browser it goes out before the drawing, with the page of before, or none. Streamlit answers for that page; the browser,
which knows better meanwhile, takes it for another one and empties itself; and what is drawn into it has no place there. The
page was blank from then on, in the second visit of a browser slowed down 20 times.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

KEY = "arrival"
PAGE, VISIT, DRAWN = "_page", "_visit", "_visit_drawn"  # which page, the number of its visit, the last one drawn

_JS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def arrived() -> bool:
    """Whether the browser has drawn the page that runs."""
    return st.session_state.get(DRAWN) == st.session_state.get(VISIT, 0)


def visit(page: str) -> None:
    """Called before a page runs, with what tells it from the others."""
    state = st.session_state
    if state.get(PAGE) != page:
        state[PAGE], state[VISIT] = page, state.get(VISIT, 0) + 1


def _hear() -> None:
    said = st.session_state[KEY].get("drawn")
    if isinstance(said, list) and said and type(said[0]) is int:
        st.session_state[DRAWN] = said[0]


def listen() -> None:
    """Draws what says it, which takes no place, and after which the page runs again. At the end of each run, for what is said
    earlier would cut the first one short."""
    draw = st.components.v2.component("attnlab_arrival", js=_JS, isolate_styles=False)
    # In a list, for Streamlit imports pandas to look at anything else.
    draw(key=KEY, data=[st.session_state[VISIT], st.session_state.get(DRAWN, 0)], on_drawn_change=_hear)
