from dataclasses import replace

import pytest
from samples import CPU, H200

from attnlab.problem import FORWARD_BACKWARD, AttentionProblem
from attnlab.roofline import Pace, compute_floor, floors, implausible, memory_floor, pace

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, dtype="bfloat16")  # F13: 1.0995 TFLOP
DECODE = AttentionProblem(batch=4, seq_q=1, seq_kv=65_536, heads=32, head_dim=128, dtype="bfloat16")
UNKNOWN = replace(H200, name="Some Future GPU")
MEASURED = replace(UNKNOWN, matmul_tflops=(("bfloat16", 700.0),), copy_tbs=4.0)


def why(problem, ms, device, l2="cold"):
    return implausible(ms, floors(problem, device, l2))


def test_floor_on_an_h200():
    assert compute_floor(PROBLEM, H200).ms == pytest.approx(1.111, abs=5e-4)


def test_time_below_the_floor_is_impossible():
    assert why(PROBLEM, 0.03, H200) == (
        "impossible: implies 36,650 TFLOP/s, above the dense bfloat16 peak of NVIDIA H200, 989.5"
    )
    assert why(PROBLEM, 1.110, H200)
    assert why(PROBLEM, 1.112, H200) == ""


@pytest.mark.parametrize("device", [H200, CPU, UNKNOWN])
def test_zero_time_is_impossible_on_any_device(device):
    assert why(PROBLEM, 0.0, device) == "impossible: a time of 0 ms"


def test_causal_problem_counts_visible_pairs_only():
    causal = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, causal=True)
    assert why(PROBLEM, 0.6, H200)
    assert why(causal, 0.6, H200) == ""


def test_a_backward_pass_that_keeps_the_scores_needs_four_products_more():
    both = replace(PROBLEM, direction=FORWARD_BACKWARD)
    assert compute_floor(both, H200).ms == pytest.approx(3 * compute_floor(PROBLEM, H200).ms)


def test_reading_a_cold_cache_faster_than_the_memory_is_impossible():
    keys_and_values_bytes = 2 * 4 * 65_536 * 32 * 128 * 2
    floor = memory_floor(DECODE, H200, "cold")
    assert floor.ms == pytest.approx((keys_and_values_bytes + 4 * 32 * 128 * 2) / 4.8e12 * 1e3)
    assert "4.8 TB/s, from a cold cache" in why(DECODE, 0.8 * floor.ms, H200)
    assert why(DECODE, 0.8 * floor.ms, H200, "hot") == ""  # a cache may be faster than the memory
    assert why(DECODE, 1.01 * floor.ms, H200) == ""


def test_what_the_mask_hides_need_not_be_read():
    few = replace(DECODE, causal=True, window=1024)
    assert memory_floor(few, H200, "cold").ms == pytest.approx(memory_floor(DECODE, H200, "cold").ms / 64, rel=0.01)


def test_a_window_without_a_causal_mask_ends_at_the_last_key():
    """One query stands at the last key: it sees the window - 1 keys before it, and behind it there are none."""
    both_sides = memory_floor(replace(DECODE, window=1024), H200, "cold")
    assert both_sides == memory_floor(replace(DECODE, causal=True, window=1024), H200, "cold")


def test_a_backward_pass_reads_the_gradient_too_and_nothing_twice():
    both = replace(PROBLEM, direction=FORWARD_BACKWARD)
    assert memory_floor(both, H200, "cold").ms == pytest.approx(memory_floor(PROBLEM, H200, "cold").ms * 4 / 3)


@pytest.mark.parametrize("unknown", [UNKNOWN, CPU])
def test_nothing_is_claimed_of_an_unknown_device(unknown):
    assert why(PROBLEM, 1e-9, unknown) == ""
    assert floors(PROBLEM, unknown, "cold") == ()


def test_an_unknown_card_is_held_to_well_above_what_was_measured_on_it():
    assert why(PROBLEM, 1.2, MEASURED) == ""  # 916 TFLOP/s: a kernel may beat the matrix product
    assert "1.5 times what a large matrix product reached here, 700 measured" in why(PROBLEM, 1.0, MEASURED)
    assert "4.00 TB/s measured" in why(DECODE, 0.7, MEASURED)


def test_a_card_that_beats_its_data_sheet_is_held_to_what_it_reaches():
    overclocked = replace(H200, matmul_tflops=(("bfloat16", 1050.0),))
    assert why(PROBLEM, 1.05, overclocked) == ""  # 1,047 TFLOP/s
    assert "1,050 measured" in why(PROBLEM, 0.5, overclocked)


def test_card_without_bfloat16_has_no_floor_for_it():
    assert compute_floor(PROBLEM, replace(H200, name="Tesla T4")) is None


@pytest.mark.parametrize(
    ("seq", "ms", "calls", "rest_s"),
    [(4_096, 1.5, 4, 0.006), (4_096, 3.5, 1, 0.005), (16_384, 23.0, 1, 0.023), (65_536, 370.0, 1, 0.1)],
)
def test_work_that_meets_the_power_limit_comes_in_bursts_with_rests(seq, ms, calls, rest_s):
    problem = AttentionProblem(batch=4, seq_q=seq, heads=32, head_dim=128)
    assert pace(problem, H200, ms) == Pace(calls, pytest.approx(rest_s))


def test_other_work_needs_no_rest():
    problem = AttentionProblem(batch=4, seq_q=2_048, heads=32, head_dim=128)
    assert pace(problem, H200, 0.45) is None  # over before the limit is met
    assert pace(problem, H200, 2.7) is None  # standard: far from the compute floor
    assert pace(problem, CPU, 5.0) is None
    assert pace(problem, replace(H200, name="NVIDIA Unknown"), 5.0) is None  # no peak is known
