"""Words for people: markup made plain, times in the visitor's zone, ages."""

from types import SimpleNamespace

import pytest

from attnlab.ui import text


def test_markup_of_others_is_plain_text():
    assert text.escape("caf\udce9") == "caf?", "bytes in the name of a file that are no text"
    assert text.escape("a*b_c [x](y) $z$ :red[w] <b>") == (r"a\*b\_c \[x\](y) \$z\$ \:red\[w\] \<b\>")


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Europe/Berlin", "30 November 2026, 11:00"),
        ("Asia/Tokyo", "30 November 2026, 19:00"),
        ("America/Los_Angeles", "30 November 2026, 02:00"),
    ],
)
def test_times_are_told_in_the_zone_of_the_browser(monkeypatch, zone, said):
    monkeypatch.setattr(text.st, "context", SimpleNamespace(timezone=zone))
    for iso in ("2026-11-30T10:00:00+00:00", "2026-11-30T10:00:00Z", "2026-11-30T10:00:00"):
        assert text.local(iso).startswith(said)


@pytest.mark.parametrize("zone", [None, "", "Nowhere/Land", "../etc/passwd"])
def test_an_unknown_zone_is_the_one_of_the_server(monkeypatch, zone):
    monkeypatch.setattr(text.st, "context", SimpleNamespace(timezone=zone))
    assert text.local("2026-11-30T10:00:00Z")[:2].strip() in ("29", "30", "1")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "just now"), (59, "just now"), (60, "1 minute ago"), (7200, "2 hours ago"), (86_400 * 3, "3 days ago")],
)
def test_ages(seconds, said):
    assert text.age(seconds) == said
