"""The more tabs look, the less often each of them does."""

import pytest
import streamlit as st

from attnlab.ui import viewers


@pytest.fixture
def tabs(monkeypatch):
    """tabs(n, at=…) → the pace that the n-th of n tabs is told, each of which looks once."""
    none_yet = viewers._looks.__wrapped__()
    monkeypatch.setattr(viewers, "_looks", lambda: none_yet)

    def look(n, at=0.0):
        monkeypatch.setattr(viewers.time, "monotonic", lambda: at)
        for tab in range(n):
            monkeypatch.setattr(st, "session_state", {"_viewer": str(tab)})
            pace = viewers.pace()
        return pace

    return look


@pytest.mark.parametrize(("n", "pace"), [(1, 1), (10, 1), (11, 2), (20, 2), (25, 3), (500, viewers.SLOWEST)])
def test_the_pace_slows_as_tabs_come(tabs, n, pace):
    assert tabs(n) == pace


def test_a_tab_that_looks_again_is_one_tab_and_one_that_is_gone_is_none(tabs):
    assert tabs(8) == 1 and tabs(8, at=1.0) == 1
    assert tabs(25, at=2.0) == 3
    assert tabs(3, at=2.0 + viewers.GONE_S / 2) == 3  # the others may still be there
    assert tabs(3, at=3.0 + 2 * viewers.GONE_S) == 1


def test_tabs_that_wait_longest_are_not_taken_for_gone():
    assert viewers.GONE_S > 2 * viewers.SLOWEST  # the page looks every second, times its pace
