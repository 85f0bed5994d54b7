"""The more tabs look, the less often each of them does."""

import inspect
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import streamlit as st

from attnlab.ui import chart, viewers


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


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, monkeypatch, tabs: int):
        self.now, self.slept = 100.0, []
        monkeypatch.setattr(viewers.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(viewers.time, "sleep", self.sleep)
        monkeypatch.setattr(viewers, "count", lambda: tabs)
        monkeypatch.setattr(st, "session_state", {"_viewer": "0"})

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_tab_among_many_keeps_its_gap_and_waits_in_steps(monkeypatch):
    clock = Clock(monkeypatch, tabs=25)
    viewers.keep_gap(drawn_at=99.9)
    assert clock.now == pytest.approx(99.9 + 3 * viewers.GAP_S) and max(clock.slept) <= viewers.STEP_S
    clock.slept.clear()
    viewers.keep_gap(drawn_at=90.0)
    assert not clock.slept


def test_a_tab_among_few_keeps_no_gap_and_what_it_drew_goes_out_all_the_same(monkeypatch):
    clock = Clock(monkeypatch, tabs=1)
    viewers.keep_gap(drawn_at=clock.now)
    assert not clock.slept
    viewers.let_it_go()
    assert clock.slept == [viewers.SENT_S]


def test_a_wait_is_over_with_the_first_news(monkeypatch):
    clock, asked = Clock(monkeypatch, tabs=1), []
    viewers.wait(1.0, lambda step_s: (asked.append(step_s), clock.sleep(step_s), len(asked) == 3)[-1])
    assert len(asked) == 3
    viewers.wait(1.0, clock.sleep)
    assert sum(clock.slept) == pytest.approx(3 * viewers.STEP_S + 1.0)


def test_the_first_visitors_of_a_server_may_be_many():
    """declare_component asks inspect for the module that calls it, which two threads at once may get wrong."""
    assert inspect.modulesbyfile[inspect.getabsfile(chart)] == chart.__name__


def another_waits() -> bool:
    """Whether another thread cannot draw now."""
    turn = viewers._turn()
    with ThreadPoolExecutor(1) as others:
        return not (others.submit(turn.take, 0).result() and others.submit(turn.give).result())


def until(true) -> None:
    began = time.perf_counter()
    while not true():
        assert time.perf_counter() - began < 30, "it did not come"
        time.sleep(0.005)


@pytest.fixture
def turn(monkeypatch):
    turn = viewers._turn.__wrapped__()
    monkeypatch.setattr(viewers, "_turn", lambda: turn)
    return turn


@pytest.mark.parametrize(("n", "alone"), [(10, False), (11, True)])
def test_many_tabs_draw_one_after_the_other_and_few_side_by_side(tabs, turn, n, alone):
    tabs(n)
    with viewers.drawing():
        assert another_waits() == alone
        with viewers.drawing():  # a part of the page within the page's own run
            assert another_waits() == alone
        assert another_waits() == alone
    with pytest.raises(InterruptedError), viewers.drawing():
        raise InterruptedError
    assert not another_waits(), "Streamlit ends a run with an exception"


def test_a_tab_that_draws_without_end_keeps_no_other_from_it(tabs, turn, monkeypatch):
    tabs(25)
    monkeypatch.setattr(viewers, "TURN_S", 0.01)
    with ThreadPoolExecutor(1) as others:
        others.submit(turn.take, 0).result()
        with viewers.drawing():
            pass
        assert another_waits(), "the other's turn is still its own"
        others.submit(turn.give).result()


@pytest.mark.parametrize(("n", "order"), [(25, ["charts", 0, 1, 2, "rest"]), (10, ["charts", "rest"])])
def test_those_who_wait_draw_in_the_order_they_came_before_a_tab_goes_on(tabs, turn, n, order):
    tabs(n)
    drawn = []

    def draw(i):
        with viewers.drawing():
            drawn.append(i)

    with ThreadPoolExecutor(3) as others, viewers.drawing():
        drawn.append("charts")
        for i in range(3 if n > viewers.FEW else 0):
            others.submit(draw, i)
            until(lambda i=i: len(turn._waiting) == i + 1)
        viewers.others_first()
        drawn.append("rest")
    assert drawn == order


def test_a_tab_that_lets_the_others_go_first_and_waits_too_long_goes_on_without_a_turn(tabs, turn, monkeypatch):
    tabs(25)
    with ThreadPoolExecutor(1) as others:
        with viewers.drawing():
            other = others.submit(turn.take, 60)
            until(lambda: turn._waiting)
            monkeypatch.setattr(viewers, "TURN_S", 0.01)
            viewers.others_first()
            assert other.result()
        assert another_waits(), "the other's turn is still its own"
        others.submit(turn.give).result()
    assert not another_waits()


def test_a_tab_that_only_asks_whether_there_are_many_is_none_of_them(tabs):
    tabs(10)
    assert not viewers.many()
    tabs(11)
    assert viewers.many() and viewers.many()
