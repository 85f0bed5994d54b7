"""How many tabs look at this server, so that each asks less often the more there are.

A tab that looks again and again costs the server some milliseconds of one thread each time. Alone it may do so four times a
second; with 25 of them all would come late.
"""

from __future__ import annotations

import secrets
import threading
import time

import streamlit as st

GONE_S = 12.0  # a tab that has not looked for so long; it looks every second, or SLOWEST times that
FEW = 13  # tabs that need not wait for one another
SLOWEST = 4  # times the usual interval


@st.cache_resource(show_spinner=False)
def _looks() -> tuple[threading.Lock, dict[str, float]]:
    """When each tab looked last, by time.monotonic; one for the server."""
    return threading.Lock(), {}


def count() -> int:
    """The tabs that look at the moment, this one among them."""
    me, now = st.session_state.setdefault("_viewer", secrets.token_hex(8)), time.monotonic()
    lock, looks = _looks()
    with lock:
        looks[me] = now
        for gone in [tab for tab, at in looks.items() if now - at > GONE_S]:
            del looks[gone]
        return len(looks)


def pace() -> int:
    """How many times longer than alone a tab waits until it looks again: 1 up to FEW tabs, 2 up to twice as many, …"""
    return min(-(-count() // FEW), SLOWEST)
