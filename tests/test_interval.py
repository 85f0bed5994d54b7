"""The interval of a median: against simulation and against published tables."""

from __future__ import annotations

import random
import statistics

import pytest

from attnlab.interval import median_interval, order_rank, relative_half_width


# Ranks for 95 %: Conover, Practical Nonparametric Statistics, 3rd ed., table A3 (binomial, p = 1/2).
@pytest.mark.parametrize(("n", "rank"), [(3, 1), (5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (100, 40)])
def test_rank(n, rank):
    assert order_rank(n) == rank


def test_the_rank_of_many_samples_needs_no_float_of_2_to_the_n():
    assert order_rank(2000) == pytest.approx(1000 - 1.96 * 2000**0.5 / 2, abs=1)


def test_few_samples_give_their_range():
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_coverage_is_at_least_95_percent_for_skewed_samples():
    draw = random.Random(1)
    true_median = 0.6931471805599453  # of the exponential distribution
    hits = 0
    for _ in range(2000):
        _, low, high = median_interval([draw.expovariate(1) for _ in range(15)])
        hits += low <= true_median <= high
    assert hits / 2000 >= 0.94


def test_half_width_is_relative():
    assert relative_half_width([10.0, 10.0, 11.0]) == pytest.approx(0.05)


def test_no_samples_is_an_error():
    with pytest.raises(statistics.StatisticsError):
        median_interval([])
