import pytest

from attnlab import roofline
from attnlab.device import Device
from attnlab.problem import AttentionProblem

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, dtype="bfloat16")  # F13: 1.0995 TFLOP


def device(name, kind="cuda"):
    return Device(kind=kind, name=name, uuid="GPU-0", total_bytes=1 << 37, free_bytes=1 << 37)


def test_floor_on_an_h200():
    assert roofline.compute_floor_ms(PROBLEM, device("NVIDIA H200")) == pytest.approx(1.111, abs=5e-4)


def test_time_below_the_floor_is_impossible():
    assert roofline.implausible(PROBLEM, 0.03, device("NVIDIA H200")) == (
        "impossible: implies 36,650 TFLOP/s, above the dense bfloat16 peak of NVIDIA H200, 989.5"
    )
    assert roofline.implausible(PROBLEM, 1.110, device("NVIDIA H200"))
    assert roofline.implausible(PROBLEM, 1.112, device("NVIDIA H200")) == ""


def test_zero_time_is_impossible_and_no_error():
    assert roofline.implausible(PROBLEM, 0.0, device("NVIDIA H200")).startswith("impossible: 0 ms")


def test_causal_problem_counts_visible_pairs_only():
    causal = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, causal=True)
    assert roofline.implausible(PROBLEM, 0.6, device("NVIDIA H200"))
    assert roofline.implausible(causal, 0.6, device("NVIDIA H200")) == ""


@pytest.mark.parametrize("unknown", [device("Some Future GPU"), device("NVIDIA H200", kind="cpu")])
def test_nothing_is_claimed_of_an_unknown_device(unknown):
    assert roofline.implausible(PROBLEM, 1e-9, unknown) == ""
    assert roofline.compute_floor_ms(PROBLEM, unknown) is None


def test_card_without_bfloat16_has_no_floor_for_it():
    assert roofline.compute_floor_ms(PROBLEM, device("Tesla T4")) is None
