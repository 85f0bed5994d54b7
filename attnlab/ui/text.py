"""Words for people: text that markdown must not read as markup, and times in the visitor's own time zone."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # breaks a line, or turns it around


def escape(text: str) -> str:
    """Text that markdown would read as markup, made plain, in one line. For everything that this program did not write
    itself."""
    text = CONTROL.sub(" ", text.encode("utf-8", "replace").decode())  # the name of a file may hold what is no text
    for sign in "\\`*_[]$:<>#~&|":
        text = text.replace(sign, "\\" + sign)
    return text


def local(iso: str) -> str:
    """An ISO 8601 time in UTC as "30 November 2026, 14:03 (3 hours ago)", in the zone of the browser."""
    moment = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        zone = ZoneInfo(st.context.timezone) if st.context.timezone else None
    except (ZoneInfoNotFoundError, ValueError):
        zone = None  # a name that this machine's tables lack: the server's own zone is the next best
    there = moment.astimezone(zone)
    return f"{there.day} {there:%B %Y, %H:%M} ({age((datetime.now(timezone.utc) - moment).total_seconds())})"


def age(seconds: float) -> str:
    """A duration as "just now", "5 minutes ago", "1 day ago"."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count > 0:  # the clock that wrote it may be ahead of ours
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
