"""The list of runs: all entries there are, the filters above them, the table, and which of its rows are chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from zlib import crc32
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from attnlab import history, tabular, units
from attnlab.comparison import MOST
from attnlab.history import Entry
from attnlab.run import Run
from attnlab.store import Store
from attnlab.ui import shell
from attnlab.ui.points import number
from attnlab.ui.verdict_tables import text

if TYPE_CHECKING:
    import pandas as pd

SHOWN_MAX = 1_000  # rows; a search finds the others
ROWS = 7
ROW_PX = 37
RATIO_ROWS = 12
DESCRIBE_S = 0.2  # of a page's run go into sentences that the list still lacks


@st.cache_resource(show_spinner=False)
def shipped() -> tuple[Entry, ...]:
    """The runs that come with AttnLab, called as their files. Made once a server."""
    runs, _ = shell.recordings()
    return tuple(history.entry_of(run, name=name, ships=True) for name, run in runs.items())


def entries(store: Store, recorded: Sequence[Entry]) -> list[Entry]:
    """All there is, newest first."""
    return sorted([*store.entries(), *recorded], key=lambda entry: entry.run.created, reverse=True)


def filters(there: Sequence[Entry]) -> list[Entry]:
    """Draws search and filters; returns what they leave."""
    search, device, path, shape = st.columns([3, 2, 2, 3], gap="small")
    words = search.text_input(
        "Search", key="runs_search", placeholder="Search names, notes, versions, sentences", max_chars=200,
        label_visibility="collapsed",
    )  # fmt: skip
    chosen = {
        "devices": _choice(device, "Device", "runs_device", (entry.device for entry in there)),
        "paths": _choice(path, "Path", "runs_path", (path for entry in there for path in entry.run.sweep.paths)),
        "shapes": _choice(shape, "Shape", "runs_shape", (entry.shape for entry in there)),
    }
    return history.chosen(there, words, **chosen)


def _choice(place: Any, label: str, key: str, values: Any) -> list[str]:
    """The values that occur, the most frequent first."""
    options = [value for value, _ in Counter(values).most_common()]
    return place.multiselect(
        label, options, key=key, placeholder=f"{label}: all", label_visibility="collapsed", select_all=False
    )


def key_of(shown: Sequence[Entry]) -> str:
    """A table of other rows is another widget: a choice is by place, and places move."""
    return f"runs_{crc32(chr(0).join(entry.run.id for entry in shown).encode()):08x}_{len(shown)}"


def chosen(shown: Sequence[Entry]) -> list[Entry]:
    """The rows that are chosen, in the order of the list; kept while the list changes around them."""
    state = st.session_state
    found = state.get(key_of(shown))
    if found is not None:
        rows = [row for row in found["selection"]["rows"] if row < len(shown)]
        state["runs_chosen"] = tuple(shown[row].run.id for row in rows)
    return [entry for entry in shown if entry.run.id in state.get("runs_chosen", ())]


def draw(shown: Sequence[Entry]) -> None:
    """The table. A click on a row's box chooses it."""
    ids = st.session_state.get("runs_chosen", ())
    rows = [place for place, entry in enumerate(shown) if entry.run.id in ids]
    st.dataframe(
        frame(shown),
        key=key_of(shown),
        hide_index=True,
        height=ROW_PX * (ROWS + 1) + 3,
        column_config=config(),
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": rows}},
        placeholder="–",
        alt="Every run: date, name, device, problem, status and sentence",
    )


def frame(shown: Sequence[Entry]) -> pd.DataFrame:
    """One row for each entry."""
    import pandas as pd  # half a second that the first paint need not wait for

    columns: dict[str, list[Any]] = {
        "date": [moment(entry.run.created) for entry in shown],
        "name": [entry.name for entry in shown],
        "device": [entry.device for entry in shown],
        "sentence": [entry.sentence for entry in shown],
        "problem": [entry.shape for entry in shown],
        "seqs": [lengths(entry) for entry in shown],
        "status": [entry.status for entry in shown],
        "from": [origin(entry) for entry in shown],
        "paths": [", ".join(entry.run.sweep.paths) for entry in shown],
        "versions": [entry.versions for entry in shown],
        "note": [" ".join(entry.note.split()) for entry in shown],
    }
    return pd.DataFrame(
        {name: values if name == "date" else pd.array(values, "string") for name, values in columns.items()}
    )


def moment(iso: str) -> datetime:
    found = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def lengths(entry: Entry) -> str:
    seqs = entry.run.sweep.seqs
    return units.sequence(seqs[0]) if len(seqs) == 1 else f"{units.sequence(seqs[0])} to {units.sequence(seqs[-1])}"


def origin(entry: Entry) -> str:
    """Where it comes from: a number that was not measured here says so."""
    return "ships with AttnLab" if entry.ships else "imported" if entry.run.recorded else "measured here"


def zone() -> str:
    """The browser's time zone where this machine knows it."""
    try:
        return ZoneInfo(st.context.timezone).key if st.context.timezone else "UTC"
    except (ZoneInfoNotFoundError, ValueError):
        return "UTC"


def config() -> dict[str, Any]:
    return {
        "date": st.column_config.DatetimeColumn("Date", format="YYYY-MM-DD HH:mm", timezone=zone(), width=135),
        "name": text("Name", 175),
        "device": text("Device", 135),
        "sentence": text("Sentence", 470),
        "problem": text("Problem", 290),
        "seqs": text("Sequence", 125),
        "status": text("Status", 190),
        "from": text("From", 145),
        "paths": text("Paths", 190),
        "versions": text("Versions", 330),
        "note": text("Note", 200),
    }


RATIOS = {
    "path": text("Path", 130, pinned=True),
    "seq": st.column_config.NumberColumn("Sequence", format="localized", pinned=True),
    "against A": text("Run", 60),
    "A_ms": number("A ms"),
    "ms": number("B ms"),
    "ratio": st.column_config.NumberColumn("÷ A", format="%.3f×", help="Time ÷ time of A: above 1 it is slower"),
    "low": st.column_config.NumberColumn("Low", format="%.3f×", help="The least that the intervals leave possible"),
    "high": st.column_config.NumberColumn(
        "High", format="%.3f×", help="The greatest that the intervals leave possible"
    ),
    "verdict": text("What is said of it", "large"),
}


def summary(there: Sequence[Entry], found: Sequence[Entry]) -> str:
    """What the list holds, in a sentence, for when nothing is chosen."""
    devices = len({entry.device for entry in there})
    held = f"{len(there):,} runs from {devices:,} device{'s' * (devices != 1)}"
    cut = f", {len(found):,} of them shown" if len(found) != len(there) else ""
    return f"{held}{cut}: choose one to look at it, two to {MOST} to compare them."


def ratios(runs: Sequence[Run]) -> None:
    """Every ratio of the later runs to the first, as a table."""
    import pandas as pd  # half a second that the first paint need not wait for

    names, *rows = tabular.ratio_rows(runs)
    data = pd.DataFrame(rows, columns=names)
    texts = {"path", "against A", "verdict"}
    kinds = {name: "string" if name in texts else "Int64" if name == "seq" else "Float64" for name in names}
    st.dataframe(
        data.astype(kinds).drop(columns="against A") if len(runs) == 2 else data.astype(kinds),
        key="runs_ratios",
        hide_index=True,
        height=ROW_PX * (min(len(rows), RATIO_ROWS) + 1) + 3,
        column_config=RATIOS if len(runs) == 2 else {**RATIOS, "ms": number("ms")},
        placeholder="–",
        alt="Every ratio with its interval and what is said of it",
    )
