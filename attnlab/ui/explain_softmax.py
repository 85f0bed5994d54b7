"""Online softmax by hand, with the reader's own numbers."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnlab import online_softmax
from attnlab.online_softmax import BLOCK, KEYS, MODES, RIGHT, number
from attnlab.ui import headline
from attnlab.ui.text import escape

NUMBERS, MODE = "_explain_numbers", "_explain_mode"  # Streamlit forgets the widgets of a part that is not shown


def hold() -> None:
    st.session_state.setdefault(NUMBERS, (online_softmax.SCORES, online_softmax.VALUES))
    st.session_state.setdefault(MODE, RIGHT)


def key(what: str, place: int) -> str:
    return f"w_{what}_{place}"


def fill_in(scores: tuple[float, ...]) -> None:
    """Other scores, as a button asks for."""
    st.session_state[NUMBERS] = (scores, online_softmax.VALUES)
    for what, numbers in zip(("score", "value"), st.session_state[NUMBERS], strict=True):
        st.session_state.update({key(what, place): given for place, given in enumerate(numbers)})


def section() -> None:
    """Numbers to edit, every block's sums, and the plain softmax beside the end."""
    hold()
    state = st.session_state
    place = st.container()
    with st.container(horizontal=True, vertical_alignment="center"):
        state.setdefault("w_mode", state[MODE])
        mode = state[MODE] = st.segmented_control(
            "Method", MODES, required=True, key="w_mode", label_visibility="collapsed"
        )
        st.button("Large logits", key="w_large", on_click=fill_in, args=(online_softmax.LARGE_SCORES,))
        st.button("Small logits", key="w_small", on_click=fill_in, args=(online_softmax.SCORES,))
    scores, values = state[NUMBERS] = numbers_form()
    refusal = online_softmax.problem_with(scores, values)
    if refusal:
        with place:
            headline.spoken("One pass over the keys, and the same answer.", lines=1)
        st.error(escape(refusal))
        return
    blocks = online_softmax.trace(scores, values, BLOCK, mode)
    truth = online_softmax.plain(scores, values)
    agrees, words = online_softmax.compared(blocks[-1].answer, truth)
    with place:
        headline.spoken(said(mode, agrees, blocks[-1].answer), lines=1)
    st.table(
        table(blocks, scores, values),
        border="horizontal",
        hide_index=True,
        alt="What each block of keys does to m, l and O",
    )
    badge = ":green-badge[✓ right]" if agrees else ":red-badge[✗ wrong]"
    left, middle, right = st.columns([2, 2, 3])
    left.markdown(f":small[In blocks: O / l]  \n**:blue[{repr_of(blocks[-1].answer)}]**")
    middle.markdown(f":small[Plain softmax, all at once]  \n**:orange[{repr_of(truth)}]**")
    right.markdown(f"{badge} {escape(words)}")


def numbers_form() -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """One column a key: its score, its value."""
    held = st.session_state[NUMBERS]
    given: dict[str, list[float | None]] = {"score": [], "value": []}
    columns = st.columns(KEYS, gap="xsmall")
    for place, column in enumerate(columns):
        for (what, label), numbers in zip((("score", "s"), ("value", "v")), held, strict=True):
            st.session_state.setdefault(key(what, place), numbers[place])
            shown = f"Block {place // BLOCK + 1}: {label}{place + 1}" if not place % BLOCK else f"{label}{place + 1}"
            given[what].append(column.number_input(shown, value=None, key=key(what, place), step=None, format="%g"))
    return tuple(given["score"]), tuple(given["value"])


def table(
    blocks: Sequence[online_softmax.Block], scores: Sequence[float], values: Sequence[float]
) -> dict[str, list[str]]:
    rows = [("before", "", "−∞" if blocks[0].m_old < 0 else "0", "", "0", "0", "", "")]
    for place, block in enumerate(blocks, start=1):
        p = ", ".join(number(weight, 3) for weight in block.p)
        seen = block.first + len(block.scores)
        so_far = number(online_softmax.plain(scores[:seen], values[:seen]))
        rows.append(
            (f"block {place}", p, number(block.m), f"**{number(block.rescale)}**", number(block.l), number(block.o),
             number(block.answer), so_far)
        )  # fmt: skip
    names = ("", "p = e^(s − m)", "max m", "rescale e^(m_old − m)", "sum l", "O", "O / l so far", "plain so far")
    return {escape(name): [cells[i].replace("^", "\\^") for cells in rows] for i, name in enumerate(names)}


def said(mode: str, agrees: bool, answer: float) -> str:
    if mode == RIGHT:
        return "One pass, block by block, and the same answer as softmax."
    if mode == online_softmax.NO_RESCALE:
        end = "nothing had to be rescaled here." if agrees else "the answer is wrong."
        return f"Without the rescale, sums of different units: {end}"
    end = "these are small enough." if agrees else f"the answer is {number(answer)}."
    return f"Without the max e^s overflows above 709: {end}"


def repr_of(value: float) -> str:
    """All digits that float64 shows."""
    return repr(value).replace("-", "−")
