"""A short soak: every accident is accounted for and nothing is left open. The long one, which watches memory too, is
tests/benchmarks/soak.py."""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "benchmarks" / "soak.py"


@pytest.fixture
def soak(monkeypatch):
    """The script as a module; what it asks of the environment ends with the test."""
    monkeypatch.setenv("ATTNLAB_FAULTY", "")
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "soak", module)
    spec.loader.exec_module(module)
    gc.collect()  # what earlier tests have left open would be closed in the middle, and counted
    return module


def test_a_short_soak_accounts_for_every_point(soak, tmp_path):
    accounts = soak.soak(120, "fake", tmp_path)
    assert accounts.broken == []
    assert len(accounts.found) >= 5 and len(accounts.workers) >= 3, "there were accidents, and workers that died of them"
    assert accounts.statuses["ok"] > 100


def test_the_accounts_notice_what_is_lost(soak, tmp_path, monkeypatch):
    """A soak that cannot break says nothing."""
    from attnlab.store import Store

    written = Store.event
    monkeypatch.setattr(
        Store, "event", lambda self, run, kind, data: None if data.get("seq_kv") == 256 else written(self, run, kind, data)
    )
    lost = soak.soak(12, "fake", tmp_path).broken
    assert [line for line in lost if "the store holds 12 of 18 points" in line]
