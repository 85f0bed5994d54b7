"""Which samples count: impossible ones and outliers are kept and used for nothing."""

from dataclasses import replace

import pytest
from samples import CPU, H200

from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.samples import screened

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)  # F13: 1.0995 TFLOP, 1.111 ms at the peak


def point(*samples_ms, device_ms=2.0, **more):
    return Measurement.of(
        PROBLEM, "flash", "ok", device_ms=device_ms, samples=len(samples_ms), samples_ms=samples_ms, l2="cold", **more
    )


def test_f13_an_impossible_sample_is_kept_flagged_and_used_for_nothing():
    m = screened(point(2.0, 0.03, 2.2, 2.1), H200)
    assert m.ok and m.samples_ms == (2.0, 0.03, 2.2, 2.1) and m.unused == (1,)
    assert (m.device_ms, m.device_ms_low, m.samples) == (2.1, 2.0, 3)
    assert m.notes == (
        "1 sample kept out: impossible: implies 36,650 TFLOP/s, above the dense bfloat16 peak of NVIDIA H200, 989.5",
    )


def test_a_point_of_impossible_samples_is_suspect_and_counts_nowhere():
    m = screened(point(0.03, 0.03, 2.0), H200)
    assert m.status == "suspect" and "36,650" in m.reason and m.device_ms == 0.03 and m.samples == 0
    assert m.unused == (0, 1, 2)


def test_f14_a_sample_far_above_the_smallest_is_an_outlier():
    m = screened(point(2.0, 2.1, 900.0, 2.2), H200)
    assert m.ok and m.unused == (2,) and m.device_ms == 2.1
    assert "1 outlier kept out: up to 900 ms" in m.notes[0]


def test_most_samples_are_no_outliers():
    """On a host that shares its cores a call takes its time or a turn of the scheduler more."""
    m = screened(point(0.3, 8.0, 8.1, 8.2, 0.31, 8.3), CPU)
    assert m.unused == m.notes == () and (m.device_ms, m.device_ms_low, m.device_ms_high) == (8.05, 0.3, 8.3)
    assert screened(point(2.0, 90.0), CPU).interval_ms == (2.0, 90.0)


def test_the_smallest_of_an_impossible_lot_makes_no_outliers():
    assert screened(point(0.0001, 2.0, 2.1, 2.2), H200).unused == (0,)


def test_a_point_without_a_sample_that_counts_is_suspect_and_says_why():
    m = screened(point(2.0, 2.1, unused=(0, 1), notes=("2 samples kept out: the clock moved",)), H200)
    assert m.status == "suspect" and m.reason == "no sample counts: 2 samples kept out: the clock moved"


def test_screening_again_changes_nothing():
    once = screened(point(2.0, 0.03, 2.2, 2.1, 50.0), H200)
    assert once.unused == (1, 4) and screened(once, H200) == once


def test_what_the_worker_left_out_stays_out():
    m = screened(point(2.0, 5.0, 2.2, 2.1, unused=(1,)), H200)
    assert m.unused == (1,) and m.device_ms == 2.1


@pytest.mark.parametrize("device", [CPU, replace(H200, name="Some Future GPU")])
def test_nothing_is_impossible_where_no_peak_is_known(device):
    assert screened(point(0.03, 0.031, 0.032), device).ok


def test_a_sample_of_no_time_is_impossible_on_any_device_and_makes_no_outliers():
    m = screened(point(0.0, 2.0, 2.1, 2.2), CPU)
    assert m.ok and m.unused == (0,) and m.device_ms == 2.1


def test_a_median_without_samples_is_judged_too():
    assert "36,650" in screened(point(device_ms=0.03), H200).reason
    assert screened(point(device_ms=0.0), CPU).reason == "impossible: a time of 0 ms"
    assert screened(point(device_ms=None), CPU).reason == "reported ok without a time"
    assert screened(point(device_ms=2.0), H200) == point(device_ms=2.0)


def test_a_point_without_a_number_is_left_alone():
    m = Measurement.of(PROBLEM, "flash", "oom", reason="out of memory")
    assert screened(m, H200) is m
