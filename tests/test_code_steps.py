import pytest

from attnlab import code_steps, online_softmax
from attnlab.online_softmax import SCORES, VALUES, number


def test_the_source_is_that_of_the_file_short_enough_for_a_slide():
    for function, most in (("standard", 4), ("tiled", 28)):
        lines = code_steps.source(function).splitlines()
        assert len(lines) <= most and max(map(len, lines)) <= 76 and lines[0].startswith(f"def {function}(")
        assert "noqa" not in code_steps.source(function)
    with pytest.raises(KeyError):
        code_steps.source("fast")


def test_each_step_marks_the_line_that_makes_its_number():
    steps, lines = code_steps.steps(SCORES, VALUES), code_steps.source("tiled").splitlines()
    made = [lines[step.line].strip().split(" = ")[0] for step in steps]
    loop = ["s", "m_new", "rescale", "p", "l", "o", "m"]
    assert made == ["l, o", *loop, *loop, "out[..., i : i + block_q, :]"]


def test_the_numbers_are_those_of_the_online_softmax():
    steps = code_steps.steps(SCORES, VALUES)
    first, second = online_softmax.trace(SCORES, VALUES, online_softmax.BLOCK)
    assert steps[7].state["l"] == number(first.l) and steps[7].state["m"] == number(first.m)
    assert steps[8].state["m"] == number(first.m) and "m_new" not in steps[8].state
    assert steps[10].state["rescale"] == number(second.rescale)
    assert steps[-1].state["o / l"] == number(online_softmax.plain(SCORES, VALUES))
