"""How many tabs look at this server, so that each draws less often the more there are, and all of it arrives.

A tab that draws again and again costs the server some 10 ms of one thread each time. Alone it may do so four times a second;
with 25 of them all would come late.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import streamlit as st

GONE_S = 12.0  # a tab that has not looked for so long; it looks every second, or SLOWEST times that
FEW = 10  # tabs that need not wait for one another
SLOWEST = 4  # times the usual interval
GAP_S = 0.2  # at least, between two drawings of a tab's charts, where there are more than FEW; times the pace
SENT_S = 0.05  # in which what was drawn goes out to the browser; times the pace
TURN_S = 1.0  # after which a tab draws although another one does
STEP_S = 0.05  # after which a waiting tab looks whether its visitor has asked for something


@st.cache_resource(show_spinner=False)
def _looks() -> tuple[threading.Lock, dict[str, float]]:
    """When each tab looked last, by time.monotonic; one for the server."""
    return threading.Lock(), {}


def _there(me: str = "") -> int:
    """How many tabs look at the moment; `me` is one that does so now."""
    now = time.monotonic()
    lock, looks = _looks()
    with lock:
        if me:
            looks[me] = now
        for gone in [tab for tab, at in looks.items() if now - at > GONE_S]:
            del looks[gone]
        return len(looks)


def count() -> int:
    """The tabs that look at the moment, this one among them."""
    return _there(st.session_state.setdefault("_viewer", secrets.token_hex(8)))


def many() -> bool:
    """Whether tabs have to wait for one another. To ask this is not to look."""
    return _there() > FEW


def pace() -> int:
    """How many times longer than alone a tab waits until it looks again: 1 up to FEW tabs, 2 up to twice as many, …"""
    return min(-(-count() // FEW), SLOWEST)


def wait(seconds: float, over: Callable[[float], bool]) -> None:
    """Calls `over` with some seconds, which it may take, until it answers True or all are used up. A visitor who touches
    something need not wait for the end: reading the session's state is where Streamlit begins another run."""
    until = time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0 and st.session_state["_viewer"]:
        if over(min(left_s, STEP_S)):
            return


def keep_gap(drawn_at: float) -> None:
    """Where there are many tabs, until GAP_S have passed since this one drew last, by time.monotonic."""
    if (now := pace()) > 1:
        wait(drawn_at + GAP_S * now - time.monotonic(), time.sleep)


class Turn:
    """A lock that goes to who has waited longest; the thread that has it may take it again."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: int | None = None  # that has it,
        self._times = 0  # and so many times
        self._waiting: dict[int, threading.Event] = {}  # by thread, in the order in which they came

    def take(self, timeout_s: float) -> bool:
        """True with the lock; False where it did not come in time."""
        me, mine = threading.get_ident(), threading.Event()
        with self._guard:
            if self._thread in (None, me):
                self._thread, self._times = me, self._times + 1
                return True
            self._waiting[me] = mine
        mine.wait(timeout_s)
        with self._guard:
            self._waiting.pop(me, None)
            return self._thread == me  # it may have come at the last moment

    def give(self) -> bool:
        """False where this thread does not have it."""
        with self._guard:
            if self._thread != threading.get_ident():
                return False
            self._times -= 1
            if self._times == 0:
                self._thread = next(iter(self._waiting), None)
                if self._thread is not None:
                    self._times = 1
                    self._waiting.pop(self._thread).set()
            return True


@st.cache_resource(show_spinner=False)
def _turn() -> Turn:
    return Turn()


@contextmanager
def drawing() -> Iterator[None]:
    """Where there are many tabs, one draws after the other. Side by side all of them would be done as late as the last, and
    what is done would go out later still, because the thread that sends it waits for each of them."""
    mine = many() and _turn().take(TURN_S)
    try:
        yield
    finally:
        if mine:
            _turn().give()


def others_first() -> None:
    """Between two parts of a drawing: whoever waits draws now, then this tab goes on."""
    if _turn().give():
        _turn().take(TURN_S)


def let_it_go() -> None:
    """Waits a moment at the end of a drawing. Streamlit drops what it has not sent of a fragment when that fragment runs
    again, and on a busy server the next run waits already: tabs were seen that got nothing for ten seconds."""
    time.sleep(SENT_S * pace())
