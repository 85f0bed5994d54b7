"""The top of the page: the sentence for the stage, and four figures for the longest pair and for a picked sequence."""

from __future__ import annotations

from html import escape as escape_html
from math import ceil

import streamlit as st

from attnlab import summary
from attnlab.run import Run

LINE_CHARACTERS = 64  # of full size that surely fit beside the open sidebar


def sentence(run: Run) -> None:
    """The run in one sentence, at stage size.

    Native headings have one size for every screen. This one grows with the screen and always fills the height of two
    lines, set smaller when it is long, so that the charts below stay where they are while the sentence changes.
    """
    said = summary.sentence(run)
    size = "clamp(1.5rem, 2.05vw, 4rem)"
    lines = max(2, ceil((2 * len(said) / LINE_CHARACTERS) ** 0.5))  # n lines at 2/n of the size hold n²/2 full ones
    box = f"height: calc(2.6 * {size}); overflow: hidden"
    text = f"font-size: calc({2 / lines:.2f} * {size}); line-height: 1.25; font-weight: 650; margin: 0"
    st.html(f'<div style="{box}"><p style="{text}">{escape_html(said)}</p></div>')


def figures(run: Run) -> None:
    """Standard ms, flash ms, speed-up, memory: large for the longest sequence both managed, small for the picked."""
    *cells, pick = st.columns([4, 4, 3, 4, 2.4])
    with pick:
        if st.session_state.get("picked_seq") not in run.sweep.seqs:
            st.session_state["picked_seq"] = run.sweep.seqs[len(run.sweep.seqs) // 2]
        picked_seq = st.selectbox("Compare at", run.sweep.seqs, key="picked_seq", format_func=summary.sequence)
    longest, picked = summary.headline(run), summary.headline(run, picked_seq)
    where = f" at {summary.sequence(longest.seq)}" if longest.seq else ""
    path = longest.path or "flash"
    rows = (
        (
            f":orange[standard]{where}",
            summary.ms(longest.standard_ms),
            trouble(run, "standard", picked_seq) or summary.ms(picked.standard_ms),
        ),
        (
            f":blue[{path}]{where}",
            summary.ms(longest.flash_ms),
            trouble(run, path, picked_seq) or summary.ms(picked.flash_ms),
        ),
        (f"Speed-up{where}", summary.times(longest.speedup), summary.times(picked.speedup)),
        (f"Memory{where}", less(longest.memory_ratio), less(picked.memory_ratio)),
    )
    at = f"at {summary.sequence(picked_seq)}"
    for cell, (label, large, small) in zip(cells, rows, strict=True):
        cell.metric(
            label, large, small, delta_color="off", delta_arrow="off", delta_description=at, help=run.mark or None
        )


def trouble(run: Run, path: str, seq: int) -> str:
    """The status of a point that has no number, as one word for people; empty when there is nothing to say."""
    m = run.get(path, seq)
    if m is None or m.ok:
        return ""
    return "out of memory" if m.status == "oom" else m.status


def less(ratio: float | None) -> str:
    """ "66× less", "1.5× more", or a dash."""
    if ratio is None:
        return summary.times(None)
    return f"{summary.times(ratio)} less" if ratio >= 1 else f"{summary.times(1 / ratio)} more"
