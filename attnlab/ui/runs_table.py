"""The list of runs: all entries there are, the filters above them, and the table, with which of its rows are chosen.

The table is a st.components.v2 component (runs_table.js), and not st.dataframe: the grid of that one is 1.5 MB of script,
which a browser loads and starts for a second before a row can be read, and the server imports pandas for it. An HTML table
is there with the page's first run, is text for a screen reader, and is sent a page of the list at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from attnlab import history, units
from attnlab.checked import is_text
from attnlab.comparison import MOST
from attnlab.history import Entry
from attnlab.store import Store
from attnlab.ui import headline, shell
from attnlab.ui.tables import ROW_PX
from attnlab.ui.text import CONTROL

PAGE_ROWS = 50
ROWS = 7  # on the screen at once
CHOSEN_MAX = 1_000
DESCRIBE_S = 0.2  # of a page's run go into sentences that the list still lacks
KEY = "runs_table"
ABOVE = "runs_above"  # key of what stands above the table
VIEW, FILTERED = "_runs_view", "_runs_filtered"
FILTERS = ("runs_search", "runs_device", "runs_path", "runs_shape")  # keys of the widgets

_JS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
# What stands above comes after the table: a sentence of two lines, a row of buttons, a row of filters. Its place is kept.
_CSS = "\n".join(
    [
        f".st-key-{ABOVE} {{ min-height: calc(2.5 * {headline.SIZE} + 7rem); }}",
        Path(__file__).with_suffix(".css").read_text(encoding="utf-8"),
    ]
)


@st.cache_resource(show_spinner=False)
def shipped() -> tuple[Entry, ...]:
    """The runs that come with AttnLab, called as their files. Made once a server."""
    runs, _ = shell.recordings()
    return tuple(history.entry_of(run, name=name, ships=True) for name, run in runs.items())


def entries(store: Store, recorded: Sequence[Entry]) -> list[Entry]:
    """All there is, newest first."""
    return sorted([*store.entries(), *recorded], key=lambda entry: entry.run.created, reverse=True)


def left(there: Sequence[Entry]) -> list[Entry]:
    """What search and filters leave; asked before they are drawn, so that nothing keeps the table waiting."""
    words, *several = (st.session_state.get(key) for key in FILTERS)
    return history.chosen(there, words or "", *(values or () for values in several))


def filters(there: Sequence[Entry]) -> None:
    """Draws search and filters."""
    search, device, path, shape = st.columns([3, 2, 2, 3], gap="small")
    search.text_input(
        "Search", key=FILTERS[0], placeholder="Search names, notes, versions, sentences", max_chars=200,
        label_visibility="collapsed",
    )  # fmt: skip
    _choice(device, "Device", FILTERS[1], (entry.device for entry in there))
    _choice(path, "Path", FILTERS[2], (path for entry in there for path in entry.run.sweep.paths))
    _choice(shape, "Shape", FILTERS[3], (entry.shape for entry in there))


def _choice(place: Any, label: str, key: str, values: Iterable[str]) -> None:
    """The values that occur, the most frequent first."""
    options = [value for value, _ in Counter(values).most_common()]
    place.multiselect(
        label, options, key=key, placeholder=f"{label}: all", label_visibility="collapsed", select_all=False
    )


@dataclass(frozen=True)
class View:
    """What the visitor has made of the table. `number` grows with each thing that the table has said; `page` counts from 1."""

    number: int = 0
    chosen: tuple[str, ...] = ()  # ids of runs
    sort: str = "date"  # a column
    down: bool = True
    page: int = 1


def view() -> View:
    """The newest that is known: at first what the address says, then what the table has said since.

    Read, and not called back (see chart.new_click).
    """
    state = st.session_state
    if VIEW not in state:
        asked = st.query_params.get("page", "")
        page = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 7 else 1
        state[VIEW] = View(chosen=tuple(st.query_params.get_all("run")[:CHOSEN_MAX]), page=max(page, 1))
    said = state.get(KEY, {}).get("said")
    if isinstance(said, list) and [type(part) for part in said] == [int, list, str, bool, int]:
        number, chosen, sort, down, page = said
        known = sort in COLUMNS and page > 0 and len(chosen) <= CHOSEN_MAX and all(map(is_text, chosen))
        if known and number > state[VIEW].number:
            state[VIEW] = View(number, tuple(chosen), sort, down, page)
    return state[VIEW]


def publish(looked_at: Sequence[Entry]) -> None:
    """Puts the runs that are looked at, and the page of the list, into the address: a link or a reload shows the same."""
    page = view().page
    wanted = {"run": [entry.run.id for entry in looked_at[:MOST]], "page": [str(page)] * (page > 1)}
    for name, values in wanted.items():
        if st.query_params.get_all(name) != values:
            st.query_params[name] = values


def chosen(found: Sequence[Entry]) -> list[Entry]:
    """The runs that are chosen, newest first: on whatever page of the list, but none that the filters hide."""
    ids = set(view().chosen)
    return [entry for entry in found if entry.run.id in ids]


def forget(ids: Iterable[str]) -> None:
    """Runs that are chosen no longer, for they are deleted."""
    gone = set(ids)
    st.session_state[VIEW] = replace(view(), chosen=tuple(name for name in view().chosen if name not in gone))


def strangers(there: Sequence[Entry]) -> int:
    """How many runs the address names that are not here; 0 once the table has said anything."""
    now = view()
    return 0 if now.number else len(set(now.chosen) - {entry.run.id for entry in there})


def draw(found: Sequence[Entry]) -> None:
    """The table: a page of what the filters leave, as it is sorted. A click on a row chooses it."""
    state, now = st.session_state, view()
    filtered = [state.get(key) or None for key in FILTERS]  # a widget that is empty is as one that is not yet there
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(now.page if state.get(FILTERED, filtered) == filtered else 1, pages)
    state[FILTERED] = filtered
    state[VIEW] = now = replace(now, page=page)
    first = (page - 1) * PAGE_ROWS
    shown = ordered(found, now.sort, down=now.down)[first : first + PAGE_ROWS]
    table = {
        "alt": f"Every run: {', '.join(column.label.lower() for column in COLUMNS.values())}",
        "height": ROW_PX * (ROWS + 1) + 2,
        "columns": [[name, column.label, column.width_px] for name, column in COLUMNS.items()],
        "rows": [[entry.run.id, CONTROL.sub(" ", entry.title), *cells(entry)] for entry in shown],
        "chosen": [entry.run.id for entry in chosen(found)],
        "answers": now.number,
        "sort": now.sort,
        "down": now.down,
        "page": page,
        "pages": pages,
        "place": f"{first + 1:,} to {first + len(shown):,} of {len(found):,}" if shown else "nothing is found",
    }
    component = st.components.v2.component("attnlab_runs", js=_JS, css=_CSS, isolate_styles=False)
    # A list: the values of a dict are searched for dataframes, with pandas imported for it.
    component(key=KEY, data=[table], on_said_change=lambda: None)


@dataclass(frozen=True)
class Column:
    """`key` sorts where the text of the cell does not."""

    label: str
    width_px: int
    text: Callable[[Entry], str]
    key: Callable[[Entry], Any] | None = None


def ordered(entries: Sequence[Entry], name: str, *, down: bool) -> list[Entry]:
    """Sorted by a column; those that are alike, and those without a text, in the order in which they came, empty ones last."""
    if name == "date":
        return list(entries) if down else list(entries)[::-1]
    column = COLUMNS[name]
    keyed = [(column.key(entry) if column.key else column.text(entry).casefold(), entry) for entry in entries]
    full = sorted((pair for pair in keyed if pair[0]), key=lambda pair: pair[0], reverse=down)
    return [entry for _, entry in full] + [entry for key, entry in keyed if not key]


def cells(entry: Entry) -> list[str]:
    return [CONTROL.sub(" ", column.text(entry)) for column in COLUMNS.values()]


def moment(iso: str) -> str:
    """An ISO 8601 moment as "2026-11-30 14:03", in the zone of the browser."""
    found = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    there = (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(zone())
    return f"{there:%Y-%m-%d %H:%M}"


def lengths(entry: Entry) -> str:
    seqs = entry.run.sweep.seqs
    return units.sequence(seqs[0]) if len(seqs) == 1 else f"{units.sequence(seqs[0])} to {units.sequence(seqs[-1])}"


def origin(entry: Entry) -> str:
    """Where it comes from: a number that was not measured here says so."""
    return "ships with AttnLab" if entry.ships else "imported" if entry.run.recorded else "measured here"


def zone() -> ZoneInfo:
    """The browser's time zone where this machine knows it."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def summary(there: Sequence[Entry], found: Sequence[Entry]) -> str:
    """What the list holds, in a sentence, for when nothing is chosen."""
    devices = len({entry.device for entry in there})
    held = f"{len(there):,} runs from {devices:,} device{'s' * (devices != 1)}"
    cut = f", {len(found):,} of them shown" if len(found) != len(there) else ""
    return f"{held}{cut}: choose one to look at it, two to {MOST} to compare them."


COLUMNS = {
    "date": Column("Date", 145, lambda entry: moment(entry.run.created)),
    "name": Column("Name", 175, lambda entry: entry.name),
    "device": Column("Device", 135, lambda entry: entry.device),
    "sentence": Column("Sentence", 470, lambda entry: entry.sentence),
    "problem": Column("Problem", 310, lambda entry: entry.shape),
    "seqs": Column("Sequence", 135, lengths, lambda entry: entry.run.sweep.seqs[::-1]),
    "status": Column("Status", 190, lambda entry: entry.status),
    "from": Column("From", 150, origin),
    "paths": Column("Paths", 190, lambda entry: ", ".join(entry.run.sweep.paths)),
    "versions": Column("Versions", 330, lambda entry: entry.versions),
    "note": Column("Note", 200, lambda entry: entry.note),
}
