"""Tables with a place of their own: rows as Arrow, which Streamlit sends as it is.

A pandas DataFrame would be half a second of the server's first table, and at every drawing cost more than all else on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

if TYPE_CHECKING:
    import pyarrow as pa

MIB = 1024 * 1024
ROW_PX = 37  # at the theme's font size; the head is as high
WHOLE = ("seq", "samples", "unused", "place")  # columns of whole numbers


def mib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / MIB


def number(label: str, digits: int = 4, help: str | None = None) -> Any:
    return st.column_config.NumberColumn(label, format=f"%.{digits}g", help=help)


def arrow(rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> pa.Table:
    """One row for each of `rows`, its columns and their types those of `config`; null where a row has no value."""
    import pyarrow as pa  # the first paint need not wait for it

    def kind(name: str) -> pa.DataType:
        if config[name]["type_config"]["type"] == "text":
            return pa.string()
        return pa.int64() if name in WHOLE else pa.float64()

    schema = pa.schema([(name, kind(name)) for name in config])
    decimals = {name for name in config if schema.field(name).type == pa.float64()}

    def cell(name: str, value: Any) -> Any:
        # Arrow takes a whole number for a decimal one only while it loses nothing by that.
        return float(value) if name in decimals and value is not None else value

    return pa.Table.from_pylist([{name: cell(name, value) for name, value in row.items()} for row in rows], schema)


def draw(
    key: str, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any], alt: str, height_rows: int = 0
) -> None:
    """Draws them, as high as `height_rows` of them whatever their number, so that nothing moves while rows arrive; as high as
    they are when that is 0."""
    st.dataframe(
        arrow(rows, config),
        key=key,
        hide_index=True,
        height=ROW_PX * (height_rows + 1) + 3 if height_rows else "content",
        column_config=dict(config),
        placeholder="–",
        alt=alt,
    )
