"""Parts of memory against the peak that they make up, and the longest sequence against trying its neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import cost, memory_plan
from attnlab.problem import DIRECTIONS, FORWARD_BACKWARD, LIMITS, AttentionProblem

GIB = 2**30
PROBLEM = AttentionProblem(batch=4, seq_q=16_384, heads=32, head_dim=128)

problems = st.builds(
    AttentionProblem,
    batch=st.integers(1, 4),
    seq_q=st.integers(1, 4096),
    heads=st.just(8),
    kv_heads=st.sampled_from([1, 2, 8]),
    head_dim=st.sampled_from([32, 64, 128]),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    causal=st.booleans(),
    direction=st.sampled_from(DIRECTIONS),
)
paths = st.sampled_from(["standard", "compiled", "flash", "flash-attn-2", "sdpa-flash", "sdpa-math"])
kinds = st.sampled_from(["cuda", "cpu"])


@given(problems, paths, kinds)
def test_the_parts_are_the_whole(problem, path, kind):
    mask = cost.mask_bytes(problem) if path in memory_plan.WANTS_MASK else 0
    whole = (
        cost.input_bytes(problem) - cost.mask_bytes(problem) + mask + cost.added_mask_bytes(problem, path, kind)
        + cost.saved_bytes(problem, path, kind) + cost.predicted_peak_bytes(problem, path, kind)
    )  # fmt: skip
    assert memory_plan.total_bytes(problem, path, kind) == whole
    parts = memory_plan.parts(problem, path, kind)
    assert all(part.size_bytes > 0 for part in parts)
    assert len({part.name for part in parts}) == len(parts)


def named(problem, path):
    return {part.name: part.size_bytes for part in memory_plan.parts(problem, path)}


def test_the_parts_by_name():
    tensor, scores = 512 * 2**20, 64 * GIB
    assert named(PROBLEM, "standard") == {
        "Q": tensor, "K": tensor, "V": tensor, "scaled scores": scores, "probabilities": scores,
    }  # fmt: skip
    assert named(PROBLEM, "flash") == {"Q": tensor, "K": tensor, "V": tensor, "O": tensor, "log-sum-exp": 8 * 2**20}


def test_training_with_grouped_heads():
    training = replace(PROBLEM, kv_heads=8, direction=FORWARD_BACKWARD)
    flash, tensor = named(training, "flash"), 512 * 2**20
    assert flash["dQ accumulator in float32"] == 2 * tensor
    assert flash["dK and dV for each query head"] == 2 * tensor and flash["dK"] == tensor // 4
    assert "dK and dV for each query head" not in named(replace(training, kv_heads=32), "flash")
    standard = named(training, "standard")
    assert sum(size for size in standard.values() if size == 64 * GIB) == 4 * 64 * GIB
    assert standard["probabilities, saved for backward"] == 64 * GIB


def test_only_operations_written_out_need_the_mask():
    causal = replace(PROBLEM, causal=True)
    assert named(causal, "standard")["mask"] == 16_384**2 and "mask" not in named(causal, "flash")


@given(problems, paths, st.integers(1, 200 * GIB))
def test_the_longest_that_fits_fits_and_one_more_does_not(problem, path, capacity):
    longest = memory_plan.longest_seq(problem, path, capacity)
    if longest:
        assert memory_plan.total_bytes(problem.at_seq(longest), path) <= capacity
    if (longest or 0) < LIMITS["seq_q"]:
        assert memory_plan.total_bytes(problem.at_seq((longest or 0) + 1), path) > capacity


def test_the_longest_on_paper():
    # 2 scores of 4 · 32 · s² · 2 bytes and three tensors of 4 · s · 32 · 128 · 2 bytes in 80 GiB
    assert memory_plan.longest_seq(PROBLEM, "standard", 80 * GIB) == 12_857
    assert 512 * 12_857**2 + 3 * 32_768 * 12_857 <= 80 * GIB < 512 * 12_858**2 + 3 * 32_768 * 12_858
    assert memory_plan.longest_seq(PROBLEM, "flash", 80 * GIB) == 80 * GIB // (4 * 32_768 + 512)
    assert memory_plan.longest_seq(PROBLEM, "standard", 10) is None


def test_in_words():
    assert memory_plan.sentence(PROBLEM, 80 * GIB, "A100") == (
        "In the 80 GiB of A100 standard attention ends at sequence 12,857, flash at 652,809; at 16,384 standard needs"
        " 130 GiB, 64× what flash needs."
    )
    assert "not even one token" in memory_plan.sentence(PROBLEM, 10, "A100")
    assert memory_plan.longest_words(None) == "none fits"
    assert memory_plan.longest_words(LIMITS["seq_q"]) == "16,777,216 or more"


def test_a_column_for_each_path_and_purpose():
    names, found = memory_plan.table(PROBLEM, [("standard", "forward"), ("flash", FORWARD_BACKWARD)])
    assert names[:3] == ["Q", "K", "V"] and set(found[0]) | set(found[1]) == set(names)
    training = replace(PROBLEM, direction=FORWARD_BACKWARD)
    assert sum(found[1].values()) == memory_plan.total_bytes(training, "flash")


@pytest.mark.parametrize("path", ["standard", "flash", "sdpa-math"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_peak_parts_add_up_to_the_peak(path, direction):
    problem = replace(PROBLEM, direction=direction, kv_heads=8)
    parts = cost.peak_parts(problem, path)
    assert sum(part.size_bytes for part in parts) == cost.predicted_peak_bytes(problem, path)
