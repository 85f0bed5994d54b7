"""Standard attention in three lines, and the tiled version stepped through beside what its variables hold."""

from __future__ import annotations

from html import escape as escape_html

import streamlit as st

from attnlab import code_steps
from attnlab.online_softmax import BLOCK, KEYS, SCORES, VALUES, problem_with
from attnlab.ui import headline
from attnlab.ui.explain_softmax import NUMBERS
from attnlab.ui.text import escape

STEP = "_explain_step"  # Streamlit forgets the widgets of a part that is not shown


def section() -> None:
    """Standard in three lines; the tiled version, a line at a time, with the numbers at that line."""
    state = st.session_state
    state.setdefault(STEP, 0)
    scores, values = state.get(NUMBERS, (SCORES, VALUES))
    if problem_with(scores, values):
        scores, values = SCORES, VALUES
    steps = code_steps.steps(scores, values)
    headline.spoken("Three lines that write the scores to memory, or one loop that never does.", lines=1)
    left, right = st.columns([5, 2], gap="small")
    with right:
        state.setdefault("w_step", min(state[STEP], len(steps) - 1))
        st.button("Next line", key="w_next", on_click=next_line, args=(len(steps),), type="primary", width="stretch")
        step = st.slider("Line by line", 0, len(steps) - 1, key="w_step", label_visibility="collapsed")
        state[STEP] = step
        now = steps[step]
        st.markdown(f"**{escape(now.where)}**")
        st.table(
            {"Name": [f"`{name}`" for name in now.state], "Now": list(now.state.values())},
            border="horizontal", hide_index=True, alt="What the variables hold at this line",
        )  # fmt: skip
        st.markdown(f":small[The {KEYS} scores are those of Online softmax, for one query, in blocks of {BLOCK}.]")
    with left:
        listing(code_steps.source("standard"), code_steps.source("tiled"), now.line)


def next_line(count: int) -> None:
    st.session_state["w_step"] = (st.session_state.get("w_step", 0) + 1) % count


def listing(above: str, source: str, line: int) -> None:
    """Two functions, of the second one line marked. st.code marks none; the tint is readable on light and dark."""
    mark = "background: rgba(47, 134, 224, 0.32); font-weight: 650; border-radius: 0.25rem"
    first = -len(above.splitlines()) - 1
    lines = [
        f'<div style="min-height: 1.3em; padding: 0 0.5rem; {mark if place == line else ""}">{escape_html(text)}</div>'
        for place, text in enumerate([*above.splitlines(), "", *source.splitlines()], start=first)
    ]
    size = "font-size: clamp(0.72rem, 0.86vw, 1.2rem); line-height: 1.3; white-space: pre; overflow-x: auto; margin: 0"
    st.html(f'<pre style="{size}">{"".join(lines)}</pre>')
