"""What a page's form holds: in the session under a name that is no widget's, because Streamlit forgets the widgets of a page
that is left, and in the address, so that a link shows the same.

    fields = {"batch": Field(4, whole(1, 64), "whole numbers from 1 to 64")}
    kept.fill("m_", fields)                          # before the widgets, which have the keys m_batch, …
    note = kept.keep("m_", fields, {"batch": 8})     # after them

An address is read once a session and validated here: what cannot be is left as it was and told in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from attnlab import checked


@dataclass(frozen=True)
class Field:
    """`read` takes the address's text and raises ValueError for what cannot be; `legal` says in words what can."""

    default: Any
    read: Callable[[str], Any]
    legal: str


def fill(prefix: str, fields: Mapping[str, Field]) -> None:
    """Gives every widget its value: of the link, or what was set before, or the default."""
    held = st.session_state.get(_held(prefix))
    if held is None:
        held, faults = read(prefix, fields, dict(st.query_params))
        st.session_state[_held(prefix)], st.session_state[_faults(prefix)] = held, faults
    for name in fields:
        st.session_state.setdefault(prefix + name, held[name])


def keep(prefix: str, fields: Mapping[str, Field], values: Mapping[str, Any]) -> str:
    """Keeps what the widgets hold; returns what in the link was not understood, until the form says something else."""
    if values != st.session_state[_held(prefix)]:
        st.session_state[_held(prefix)], st.session_state[_faults(prefix)] = dict(values), ()
    wanted = {prefix + name: as_text(values[name]) for name in fields if values[name] is not None}
    st.query_params.update(wanted)
    for name in fields:
        if values[name] is None and prefix + name in st.query_params:
            del st.query_params[prefix + name]
    return "; ".join(st.session_state[_faults(prefix)])


def read(prefix: str, fields: Mapping[str, Field], query: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(what the address says, else the defaults; a line for each thing in it that cannot be)."""
    values, faults = {}, []
    for name, field in fields.items():
        values[name] = field.default
        if prefix + name in query:
            text = query[prefix + name]
            try:
                values[name] = field.read(text)
            except ValueError:
                faults.append(f"{prefix}{name} is {checked.shown(text)} in the link, legal: {field.legal}")
    return values, tuple(faults)


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def whole(default: int | None, least: int, most: int) -> Field:
    def read_whole(text: str) -> int:
        value = int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 12 else least - 1
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return Field(default, read_whole, f"whole numbers from {least:,} to {most:,}")


def number(default: float | None, least: float, most: float) -> Field:
    def read_number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:  # what is not a number is never within bounds
            raise ValueError(text)
        return value

    return Field(default, read_number, f"numbers from {least:g} to {most:,g}")


def one_of(default: str, options: tuple[str, ...]) -> Field:
    def read_one(text: str) -> str:
        if text not in options:
            raise ValueError(text)
        return text

    return Field(default, read_one, ", ".join(options))


def switch(default: bool) -> Field:
    words = {"true": True, "false": False}

    def read_switch(text: str) -> bool:
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]

    return Field(default, read_switch, "true, false")


def _held(prefix: str) -> str:
    return f"_kept_{prefix}"


def _faults(prefix: str) -> str:
    return f"_kept_faults_{prefix}"
