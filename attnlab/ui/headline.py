"""The top of the page: the sentence for the stage, and four figures for the longest pair and for a picked sequence."""

from __future__ import annotations

import re
from html import escape as escape_html

import streamlit as st

from attnlab import figures as charts
from attnlab import growth, summary, units
from attnlab.measurement import STATUS_WORDS
from attnlab.run import Run
from attnlab.ui import link
from attnlab.ui.text import escape

SIZE = "clamp(1.5rem, 2.05vw, 4rem)"
LINE_CHARACTERS = 64  # of full size that surely fit beside the open sidebar


def sentence(run: Run) -> None:
    """The run in one sentence, at stage size."""
    spoken(summary.sentence(run))


def spoken(said: str, lines: int = 2, size: str = SIZE, characters: int = LINE_CHARACTERS) -> None:
    """What is to be read out, at stage size, in a box of so many lines of full size, each of so many characters.

    Native headings have one size for every screen. This one grows with the screen and always fills the same height, set
    smaller when it is long, so that the charts below stay where they are while the sentence changes.
    """
    # n lines have the height of the box at lines/n of the size; at the size s each holds characters / s of them.
    scale = max(min(lines / n, n * characters / len(said)) for n in range(lines, 9))
    box = f"height: calc({1.25 * lines:g} * {size}); overflow: hidden"
    text = f"font-size: calc({scale:.2f} * {size}); line-height: 1.25; font-weight: 650; margin: 0"
    unbroken = re.sub(r"(\de-)(?=\d)", "\\1\u2060", escape_html(said))  # 2.2e-3 stays on one line
    st.html(f'<div style="{box}"><p style="{text}">{unbroken}</p></div>')


def figures(run: Run, picked_seq: int) -> None:
    """Standard ms, flash ms, speed-up, memory: large for the longest sequence both managed, small for `picked_seq`.

    On a recorded run each carries the word; the line above them says where and when.
    """
    longest, picked = summary.headline(run), summary.headline(run, picked_seq)
    path = longest.path or "flash"
    where = f" at {units.sequence(longest.seq)}" if longest.seq else ""
    said = [text for text in (longest.note, picked.note, run.mark) if text]
    help_text = ". ".join(escape(text[:1].upper() + text[1:]) for text in dict.fromkeys(said)) or None
    rows = (
        (":orange[standard]", units.ms(longest.standard_ms), ms_or_why(run, "standard", picked_seq)),
        (f":blue[{path}]", units.ms(longest.flash_ms), ms_or_why(run, path, picked_seq)),
        ("Speed-up", units.times(longest.speedup), units.times(picked.speedup)),
        ("Memory", less(longest.memory_ratio), less(picked.memory_ratio)),
    )
    at = f"at {units.sequence(picked_seq)}{', recorded' if run.mark else ''}"
    for cell, (name, large, small) in zip(st.columns(4, gap="small"), rows, strict=True):
        cell.metric(
            name + where, large, small, delta_color="off", delta_arrow="off", delta_description=at, help=help_text
        )


def picked(seqs: tuple[int, ...]) -> int:
    """The sequence length that the visitor compares at: chosen last, or in the link, or the middle one."""
    return link.adopt("picked_seq", {str(seq): seq for seq in seqs}, seqs[len(seqs) // 2])


def picker(seqs: tuple[int, ...]) -> int:
    """The sequence length to compare at; a link holds it. The middle one until the visitor has chosen."""
    at_first = picked(seqs)
    key = f"picked_seq of {seqs}"  # one widget a list: the browser keeps showing the old list's choice otherwise
    chosen = st.selectbox(
        "Compare at",
        seqs,
        seqs.index(at_first),
        key=key,
        format_func=lambda seq: f"Compare at {units.sequence(seq)}",
        label_visibility="collapsed",
        width=190,
    )
    if chosen != at_first:
        link.publish("picked_seq", chosen, str(chosen))
    return chosen


def clock() -> str:
    """Which of the three clocks the charts draw; a link holds it."""
    st.markdown(":small[:gray[Clock]]", width="content", wrap=False)
    return st.segmented_control(
        "Clock",
        list(charts.CLOCKS),
        default="device",
        key="clock",
        bind="query-params",
        required=True,
        label_visibility="collapsed",
    )


def count(run: Run) -> str:
    """By which count the rates are drawn; a link holds it. There is nothing to choose where no pair is masked."""
    st.markdown(":small[:gray[Work counted]]", width="content", wrap=False)
    masked = run.sweep.problem.masked
    chosen = st.segmented_control(
        "Count of the work",
        list(charts.COUNTS),
        default="exact",
        key="count",
        bind="query-params",
        required=True,
        disabled=not masked,
        label_visibility="collapsed",
    )
    return chosen if masked else "exact"


def curves_say(run: Run) -> str:
    """What the curves say, a sentence each: growth, crossover, plateau; beside the title the choice of their clock, which
    is returned."""
    said = growth.lines(run) or ("Not enough points yet.",)
    mark = f" :small[:gray[{escape(run.mark)}]]" if run.mark else ""
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.markdown(f"**What the curves say**{mark}", width="stretch", wrap=False)
        chosen = clock()
    st.markdown("  \n".join(f":small[{escape(line)}]" for line in said))
    return chosen


def ms_or_why(run: Run, path: str, seq: int) -> str:
    """The time, or for a point that has no number what became of it."""
    m = run.get(path, seq)
    return units.ms(None) if m is None else units.ms(m.device_ms) if m.ok else STATUS_WORDS[m.status]


def less(ratio: float | None) -> str:
    """ "66× less", "1.5× more", or a dash."""
    if ratio is None:
        return units.times(None)
    return f"{units.times(ratio)} less" if ratio >= 1 else f"{units.times(1 / ratio)} more"
