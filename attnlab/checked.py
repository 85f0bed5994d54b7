"""What comes from outside (a file, a worker, an old store), held to the fields that a dataclass declares.

One set of rules for all of it. What breaks one is a ValueError whose message is one line and names the legal values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import MISSING, fields
from datetime import MAXYEAR, MINYEAR, datetime
from typing import Any

NUMBER_MAX = 2.0**100  # above every count of a legal problem; sums, products and ratios of two stay finite in floating point
NUMBER_MIN = 1e-100  # of what is not 0: a ratio to the smallest number there is would be infinite
TEXT_MAX = 100_000  # characters
SHOWN = 60  # characters of a value that an error repeats
HALF_PAIR = re.compile("[\ud800-\udfff]")  # of a surrogate pair: JSON can hold one, and nothing could show or store it

WORDS = {
    "str": f"text of at most {TEXT_MAX:,} characters",
    "bool": "true or false",
    "int": "a whole number from 0",
    "float": f"0 or a number from {NUMBER_MIN:g} to {NUMBER_MAX:.2g}",
    "tuple[str, ...]": "a list of texts",
    "tuple[int, ...]": "a list of whole numbers",
    "tuple[float, ...]": "a list of numbers",
    "tuple[Finding, ...]": "a list of findings",
    "tuple[tuple[str, str], ...]": "a list of pairs of texts",
    "tuple[tuple[str, float], ...]": "a list of pairs of a text and a number",
}


def json_value(text: str | bytes) -> Any:
    """The value of a JSON text in UTF-8, as the standard has it: no NaN, no infinity. Raises ValueError."""
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is not JSON; legal: numbers and null")


def check_fields(kind: type, data: Any, where: str, other: Collection[str] = ()) -> None:
    """Raises ValueError unless data's fields are those of the dataclass, with values of the types it declares.

    `other` names fields that belong to something else, checked there.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object")
    declared = {f.name: f for f in fields(kind)}
    for name, value in data.items():
        if name in declared:
            check(value, declared[name].type, f"{where}'s {name}")
        elif name not in other:
            raise ValueError(f"{where} has an unknown field {shown(name)}")
    for name, field in declared.items():
        # A field without a default is needed; the problem lies flat beside the measurement's own fields.
        needed = field.default is MISSING and field.default_factory is MISSING and field.type != "AttentionProblem"
        if needed and name not in data:
            raise ValueError(f"{where} lacks {name}")


def check(value: Any, declared: str, where: str) -> None:
    """Raises ValueError unless value is of the declared type; numbers must be finite and not negative."""
    base, optional = declared.removesuffix(" | None"), declared.endswith(" | None")
    if value is None and optional:
        return
    legal = {
        "str": is_text,
        "bool": lambda value: type(value) is bool,
        "int": lambda value: type(value) is int and is_number(value),
        "float": is_number,
        "tuple[str, ...]": lambda value: _are(value, is_text),
        "tuple[float, ...]": lambda value: _are(value, is_number),
        "tuple[int, ...]": lambda value: _are(value, lambda v: type(v) is int and is_number(v)),
        "tuple[Finding, ...]": lambda value: _are(value, lambda v: type(v) is dict),
        "tuple[tuple[str, str], ...]": lambda value: _are_pairs(value, is_text),
        "tuple[tuple[str, float], ...]": lambda value: _are_pairs(value, is_number),
    }
    if not legal[base](value):
        raise ValueError(f"{where} is {shown(str(value) if type(value) is float else value)}; "
                         f"legal: {WORDS[base]}{' or null' if optional else ''}")  # fmt: skip


def is_number(value: Any) -> bool:
    """An int or float from 0 on that arithmetic can hold, and not a bool."""
    return type(value) in (int, float) and (value == 0 or NUMBER_MIN <= value <= NUMBER_MAX)


def is_finite(value: Any) -> bool:
    """An int or float of any sign that arithmetic can hold, and not a bool."""
    return type(value) in (int, float) and -NUMBER_MAX <= value <= NUMBER_MAX


def is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= TEXT_MAX and not HALF_PAIR.search(value)


def is_moment(value: Any) -> bool:
    """A date, or a date and a time, as ISO 8601 writes it; in every time zone one that a calendar has."""
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))  # Python 3.10 does not take the letter
    except (AttributeError, ValueError):
        return False
    return MINYEAR < moment.year < MAXYEAR


def _are(value: Any, one: Any) -> bool:
    return type(value) is list and all(map(one, value))


def _are_pairs(value: Any, second: Any) -> bool:
    return _are(value, lambda v: type(v) is list and len(v) == 2 and is_text(v[0]) and second(v[1]))


def shown(value: Any) -> str:
    """A value as an error repeats it: in quotes if it is text, in one line, and no longer than a line can be."""
    try:
        text = repr(value[: SHOWN + 1] if isinstance(value, str | bytes | list | tuple) else value)
    except (ValueError, RecursionError):  # of more digits than Python writes out, or nested too deep to be written
        text = f"too much of {type(value).__name__} to be shown"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN + 2 else f"{text[:SHOWN]}…"
