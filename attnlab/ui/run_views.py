"""What is chosen in the list of runs: one run from close by, or several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from attnlab import chart_parts, comparison, comparison_figure, html_page, table
from attnlab.history import Entry
from attnlab.run import NAME_MAX, NOTE_MAX, Run
from attnlab.sweep import TIME
from attnlab.ui import chart, ratio_table, run_files, text

CHART_HEIGHT = "max(330px, 44vh)"
COMPARED_HEIGHT = "max(360px, 50vh)"
BY = "compare"  # its address and its key
CHANGES = {  # the head of what has changed, and when something has
    TIME: (
        "Changes beyond the intervals",
        "A change counts where the intervals of the two medians part, neither point is launch-bound and both were timed "
        "at the same clock. What differs from one run to the next without a cause is in no interval: 1 to 4 % on an H200.",
    ),
    comparison.MEMORY: (
        "Changes of peak memory",
        "The most that one call adds above its inputs. It is counted, not sampled, and comes out the same in every run, so a "
        "change counts from 1 % on where both were counted in the same way.",
    ),
}
ALTS = {
    "latency": "Latency of each run",
    "ratio": "Ratio of the runs' times to the first",
    "memory": "Peak memory of each run",
    "memory-ratio": "Ratio of the runs' peaks of memory to the first",
}


def one(entry: Entry, run: Run, rename: Callable[[str], None], *, closed: bool) -> None:
    """A run with its name, note, charts and files. `rename` is called with its id when either text has changed.
    `closed`: nothing may."""
    mark = f":violet-badge[{text.escape(run.mark)}] " if run.mark else ""
    where = text.escape(" · ".join(part for part in (entry.device, entry.versions, entry.shape) if part))
    st.markdown(f"{mark}{text.local(run.created)} · {where}")
    name, note = st.columns([1, 3], gap="small")
    labelled = dict(on_change=rename, args=(run.id,), disabled=closed or entry.ships)
    name.text_input("Name", entry.name, max_chars=NAME_MAX, key=f"name of {run.id}", **labelled)
    note.text_input("Note", entry.note, max_chars=NOTE_MAX, key=f"note of {run.id}", **labelled)
    paths = _paths(run.sweep.paths, chart_parts.opens_with(run.sweep.paths, run.recorded), run.id)
    drawn = html_page.charts_of(run, paths)
    beside = {what: figure for what, figure in drawn.items() if what != "efficiency"}  # three stand side by side
    for place, (what, figure) in zip(chart.slots(len(beside), 2) if beside else (), beside.items(), strict=True):
        with place:
            alt = f"{what.capitalize()} against sequence length"
            chart.plotly_chart(figure, key=f"runs_{what}", height=CHART_HEIGHT, alt=alt)
    if not drawn:
        st.code("\n".join(table.rows(run)), language=None)
    run_files.of_run(run, entry.name, paths, drawn)


def compared() -> str:
    """What runs are compared by: asked before the choice is drawn, for the sentence above it."""
    found = st.session_state.get(BY, st.query_params.get(BY))
    return found if found in comparison.QUANTITIES else comparison.QUANTITIES[0]


def several(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Runs side by side: what differs, what changed, two charts, every ratio, files. `names` are what people call them."""
    of = compared()
    letters = comparison.LETTERS[: len(runs)]
    differ = comparison.differences(runs)
    called = [f"**{letter}** {text.escape(name)}" for letter, name in zip(letters, names, strict=True)]
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.markdown(" &nbsp; ".join(called), width="stretch")
        st.segmented_control(
            "Compare by", comparison.QUANTITIES, default=comparison.QUANTITIES[0], key=BY, bind="query-params",
            required=True, label_visibility="collapsed",
        )  # fmt: skip
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**What differs**")
        rows = [["", *letters], *([d.what, *d.values] for d in differ)]
        lines = ["| " + " | ".join(text.escape(cell) for cell in row) + " |" for row in rows]
        lines.insert(1, "|" + " --- |" * (len(runs) + 1))
        st.markdown(
            "\n".join(lines) if differ else "Nothing that is recorded: device, software and shape are the same."
        )
    with right:
        head, rule = CHANGES[of]
        st.markdown(f"**{head}**")
        told = [f"- {text.escape(callout.text)}" for callout in comparison.callouts(runs, of)]
        st.markdown("\n".join(told) or "None.")
        st.caption(rule)
    every, story = comparison_figure.paths_of(runs), comparison_figure.story(runs)
    paths = _paths(every, story, str([run.id for run in runs]))
    drawn = {quantity: comparison_figure.charts(runs, paths, quantity) for quantity in comparison.QUANTITIES}
    for place, (what, figure) in zip(chart.slots(2, 3), drawn[of].items(), strict=True):
        with place:
            alt = f"{ALTS[what]}, against sequence length"
            chart.plotly_chart(figure, key=f"runs_c_{what}", height=COMPARED_HEIGHT, alt=alt)
    ratio_table.draw(runs, of)
    every_chart = {what: figure for charts in drawn.values() for what, figure in charts.items()}
    run_files.of_comparison(runs, names, paths, every_chart)


def _paths(every: Sequence[str], story: Sequence[str], key: str) -> list[str]:
    """The paths in the charts and in their pictures, which have no legend to click on; at first the `story`."""
    chosen = st.multiselect(
        "Paths",
        every,
        story,
        key=f"paths of {key}",
        placeholder="Paths in the charts: none",
        label_visibility="collapsed",
    )
    return [path for path in every if path in chosen]
