"""A run that several tabs wait for is not one tab's to end."""

import pytest

from attnlab.ui import shared_runs, shell


class Tabs:
    """Tabs of one server, and a lab that notes what is cancelled."""

    def __init__(self, monkeypatch):
        self.me, self.open, self.cancelled = "a", {"a", "b", "c"}, []
        claims = shared_runs._claims.__wrapped__()
        monkeypatch.setattr(shared_runs, "_claims", lambda: claims)
        monkeypatch.setattr(shared_runs, "_me", lambda: self.me)
        there = shared_runs._there
        monkeypatch.setattr(
            shared_runs, "_there", lambda who: who in self.open if who != shared_runs.REHEARSAL else there(who)
        )
        monkeypatch.setattr(shell, "lab", lambda: self)
        monkeypatch.setattr(shell, "public", lambda: None)
        self.claims = claims[1]

    def cancel(self, run_id):
        self.cancelled.append(run_id)

    def claim(self, who, *run_ids, page="live"):
        self.me = who
        shared_runs.claim(page, run_ids)

    def leave(self, who, *run_ids):
        self.me = who
        return shared_runs.leave(run_ids)


@pytest.fixture
def tabs(monkeypatch):
    return Tabs(monkeypatch)


def test_a_run_ends_with_the_last_tab_that_waits_for_it(tabs):
    tabs.claim("a", "run", None)
    tabs.claim("b", "run")
    assert tabs.leave("b", "run", None) and not tabs.cancelled
    tabs.claim("b", "another")
    assert not tabs.leave("a", "run") and tabs.cancelled == ["run"]


def test_of_two_runs_only_the_one_ends_that_nobody_else_waits_for(tabs):
    tabs.claim("a", "shared")
    tabs.claim("b", "shared", "own")
    assert tabs.leave("b", "own", "shared") and tabs.cancelled == ["own"]


def test_a_tab_waits_on_each_of_its_pages(tabs):
    tabs.claim("a", "run", page="claims")
    tabs.claim("a", "another", page="live")
    assert tabs.leave("b", "run") and not tabs.cancelled
    assert not tabs.leave("a", "run") and tabs.cancelled == ["run"], "for oneself one need not wait"


def test_a_tab_that_was_closed_waits_for_nothing(tabs):
    tabs.claim("a", "run")
    tabs.open.remove("a")
    assert not tabs.leave("b", "run") and tabs.cancelled == ["run"]
    tabs.claim("b", "run")
    assert [who for who, _ in tabs.claims] == ["b"]


def test_a_rehearsal_waits_for_its_runs_whatever_tabs_there_are(tabs):
    shared_runs.claim("stage", ["run"], shared_runs.REHEARSAL)
    tabs.open.clear()
    assert tabs.leave("a", "run") and not tabs.cancelled


@pytest.mark.parametrize(("public", "cancelled"), [(None, ["run"]), (object(), [])])
def test_stop_ends_a_shared_run_on_ones_own_machine_and_not_on_a_public_server(tabs, monkeypatch, public, cancelled):
    said = []
    monkeypatch.setattr(shell, "public", lambda: public)
    monkeypatch.setattr(shared_runs.st, "toast", lambda text, icon: said.append(text))
    tabs.claim("a", "run")
    tabs.claim("b", "run")
    shared_runs.stop(["run", None])
    assert tabs.cancelled == cancelled and bool(said) == (not cancelled)
    tabs.open.remove("a")
    tabs.cancelled.clear()
    shared_runs.stop(["run"])
    assert tabs.cancelled == ["run"], "nobody else is left"
