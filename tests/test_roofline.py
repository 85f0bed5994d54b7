from dataclasses import replace

import pytest
from samples import H200

from attnlab import roofline
from attnlab.problem import AttentionProblem

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, dtype="bfloat16")  # F13: 1.0995 TFLOP


def test_floor_on_an_h200():
    assert roofline.compute_floor_ms(PROBLEM, H200) == pytest.approx(1.111, abs=5e-4)


def test_time_below_the_floor_is_impossible():
    assert roofline.implausible(PROBLEM, 0.03, H200) == (
        "impossible: implies 36,650 TFLOP/s, above the dense bfloat16 peak of NVIDIA H200, 989.5"
    )
    assert roofline.implausible(PROBLEM, 1.110, H200)
    assert roofline.implausible(PROBLEM, 1.112, H200) == ""


def test_zero_time_is_impossible_and_no_error():
    assert roofline.implausible(PROBLEM, 0.0, H200).startswith("impossible: 0 ms")


def test_causal_problem_counts_visible_pairs_only():
    causal = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, causal=True)
    assert roofline.implausible(PROBLEM, 0.6, H200)
    assert roofline.implausible(causal, 0.6, H200) == ""


@pytest.mark.parametrize("unknown", [replace(H200, name="Some Future GPU"), replace(H200, kind="cpu")])
def test_nothing_is_claimed_of_an_unknown_device(unknown):
    assert roofline.implausible(PROBLEM, 1e-9, unknown) == ""
    assert roofline.compute_floor_ms(PROBLEM, unknown) is None


def test_card_without_bfloat16_has_no_floor_for_it():
    assert roofline.compute_floor_ms(PROBLEM, replace(H200, name="Tesla T4")) is None
