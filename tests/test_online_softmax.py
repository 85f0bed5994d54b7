import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from attnlab import online_softmax as soft

NUMBERS = some.lists(some.floats(-1e3, 1e3), min_size=8, max_size=8)


def test_by_hand():
    first, second = soft.trace((1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 0.0, 1.0), 2)
    e = math.exp
    assert (first.m_old, first.m, first.rescale, first.l, first.o) == (-math.inf, 2.0, 0.0, e(-1) + 1, e(-1))
    assert (second.m_old, second.m, second.rescale) == (2.0, 4.0, e(-2))
    assert second.p == (e(-1), 1.0)
    assert second.l == e(-2) * (e(-1) + 1) + (e(-1) + 1)
    assert second.o == e(-2) * e(-1) + 1
    assert second.answer == pytest.approx((e(1) + e(4)) / (e(1) + e(2) + e(3) + e(4)), rel=1e-15)


def test_the_first_numbers_agree_to_the_last_digit():
    for scores in (soft.SCORES, soft.LARGE_SCORES):
        answer = soft.trace(scores, soft.VALUES, soft.BLOCK)[-1].answer
        assert soft.compared(answer, soft.plain(scores, soft.VALUES)) == (True, "equal, to the last digit of float64")


def test_plain_against_exact_fractions():
    weights = [Fraction(math.exp(score)) for score in soft.SCORES]
    exact = sum(w * Fraction(v) for w, v in zip(weights, soft.VALUES, strict=True)) / sum(weights)
    assert soft.plain(soft.SCORES, soft.VALUES) == pytest.approx(float(exact), rel=1e-14)


@given(NUMBERS, NUMBERS, some.sampled_from([1, 2, 3, 4, 8]))
def test_whatever_the_numbers_and_the_blocks_it_agrees_with_plain(scores, values, block):
    blocks = soft.trace(scores, values, block)
    assert blocks[-1].answer == pytest.approx(soft.plain(scores, values), rel=1e-9, abs=1e-9)
    assert blocks[-1].m == max(scores) and all(0 <= b.rescale <= 1 for b in blocks)


def test_without_the_rescale_it_is_wrong():
    answer = soft.trace(soft.SCORES, soft.VALUES, soft.BLOCK, soft.NO_RESCALE)[-1].answer
    agrees, words = soft.compared(answer, soft.plain(soft.SCORES, soft.VALUES))
    assert not agrees and words.startswith("wrong by 1.0")


def test_without_the_max_small_logits_are_right_and_large_ones_nan():
    small = soft.trace(soft.SCORES, soft.VALUES, soft.BLOCK, soft.NO_MAX)[-1].answer
    assert soft.compared(small, soft.plain(soft.SCORES, soft.VALUES))[0]
    large = soft.trace(soft.LARGE_SCORES, soft.VALUES, soft.BLOCK, soft.NO_MAX)[-1]
    assert large.l == math.inf and math.isnan(large.answer)
    assert soft.compared(large.answer, 1.0) == (False, "nan is no answer")
    lost = soft.trace([-1000.0] * 8, soft.VALUES, soft.BLOCK, soft.NO_MAX)[-1]
    assert lost.l == 0.0 and math.isnan(lost.answer)


def test_a_difference_in_the_last_place_is_said():
    agrees, words = soft.compared(1.0 + 2**-52, 1.0)
    assert agrees and words == "equal but for the last digit: 2.2e-16 apart, 1 in the last place"


@pytest.mark.parametrize(
    ("scores", "values", "words"),
    [
        ((1.0, None), (1.0, 1.0), "the score of key 2 is empty; legal: a number from −1,000,000 to 1,000,000"),
        ((1.0, 1.0), (1.0, 2e6), "the value of key 2 is 2000000.0; legal"),
        ((math.nan, 1.0), (1.0, 1.0), "the score of key 1 is nan; legal"),
    ],
)
def test_numbers_that_cannot_be(scores, values, words):
    assert words in soft.problem_with(scores, values)
    assert soft.problem_with(soft.SCORES, soft.VALUES) == ""
