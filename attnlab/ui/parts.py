"""Parts of a page that draw themselves again while the rest stands: Streamlit's fragments, each in a place of its own.

What Streamlit has not yet sent of a fragment, it drops when that fragment runs again. At the end of the page's own run the
browser takes out what did not arrive, and what followed would move up: the next messages would mean other elements, and the
page be blank from then on. That was seen on a busy server, with many browsers. A place that belongs to the page and not to
the fragment arrives in any case, and nothing moves. None runs by itself before the browser has drawn the page (arrival.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import streamlit as st

from attnlab.ui.arrival import arrived


def timer(run_every: float | None) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a function run again by itself each so many seconds; None: not by itself. It gets no place of its own, which
    would be a line's gap for one that draws nothing."""
    return st.fragment(run_every=run_every if arrived() else None)


def part(run_every: float | None) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a function that draws into a part of the page, which runs again by itself each so many seconds; None: not by
    itself, and alone when one of its own widgets is touched."""

    def decorate(draw: Callable[..., Any]) -> Callable[..., None]:
        fragment = timer(run_every)(draw)

        @functools.wraps(draw)
        def in_its_place(*args: Any) -> None:
            with st.container():
                fragment(*args)

        return in_its_place

    return decorate
