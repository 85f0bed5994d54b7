"""The keys of the stage: a st.components.v2 component (keys.js) that hears them anywhere on the page.

Not st.button(shortcut=…): a presenter's clicker and the arrows mean the same, which takes two keys an action; R is not
among its keys; and each would be one more button before an audience. The component also lets all type grow with the screen
while it is there, and shows the keys in one faint line, with the way to the rehearsal, that a click dismisses.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

KEY = "stage_keys"
ACTIONS = ("next", "back", "first", "run", "scale", "reveal", "preset", "rehearse", "leave")
HEARD = "_stage_heard"  # the number of the newest press that was acted upon

_JS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def pressed() -> list[str]:
    """What was pressed since this was asked last, in order; each press once.

    Read, and not called back (see chart.new_click). The browser sends its last presses with their numbers, for two that
    come while the page runs arrive as one.
    """
    presses = st.session_state.get(KEY, {}).get("pressed")
    if not isinstance(presses, list):
        return []
    newest, actions = st.session_state.get(HEARD, 0), []
    for press in presses:
        understood = isinstance(press, list) and [type(part) for part in press] == [int, str] and press[1] in ACTIONS
        if understood and press[0] > newest:
            actions.append(press[1])
            newest = press[0]
    st.session_state[HEARD] = newest
    return actions


def listen() -> None:
    """Draws the faint line, and tells the browser what was heard: it says again what was not, for a press can get lost
    between a page and the fragments that run meanwhile. The page runs again for each key that means something to it."""
    draw = st.components.v2.component("attnlab_keys", js=_JS, isolate_styles=False)
    draw(key=KEY, data=[st.session_state.get(HEARD, 0)], on_pressed_change=lambda: None)
