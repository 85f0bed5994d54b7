"""FLOPs and bytes, against counting them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import cost
from attnlab.problem import FORWARD_BACKWARD, AttentionProblem


def make(**changes):
    return AttentionProblem(**{"batch": 1, "seq_q": 128, "heads": 1, "head_dim": 64, **changes})


@given(st.integers(1, 40), st.integers(1, 40))
def test_visible_pairs_are_what_a_mask_leaves(q, kv):
    counted = sum(1 for i in range(q) for j in range(kv) if j - i <= kv - q)
    assert cost.visible_pairs(make(seq_q=q, seq_kv=kv, causal=True)) == counted


def test_f18_causal_flops_are_exact_when_lengths_differ():
    problem = make(batch=2, heads=16, seq_q=128, seq_kv=1024, causal=True)
    assert cost.visible_pairs(problem) == 122_944
    assert cost.flops(problem) == 1_007_157_248
    assert cost.dense_flops(problem) == 1_073_741_824


def test_f18_square_causal_is_half_within_a_hair():
    problem = make(seq_q=4096, causal=True)
    assert abs(cost.flops(problem) / (cost.dense_flops(problem) / 2) - 1) < 3e-4


def test_f13_the_known_count():
    assert cost.flops(make(batch=4, heads=32, seq_q=4096, head_dim=128)) == 1_099_511_627_776


def test_backward_adds_five_products():
    forward = make()
    assert cost.flops(make(direction=FORWARD_BACKWARD)) * 2 == cost.flops(forward) * 7


def test_keys_count_once_for_each_kv_head():
    mha, gqa = make(heads=8), make(heads=8, kv_heads=2)
    assert cost.min_bytes(mha) - cost.min_bytes(gqa) == 2 * 128 * 6 * 64 * 2


@pytest.mark.parametrize(("seq", "bytes_"), [(512, 67_108_864), (8192, 17_179_869_184)])
def test_the_score_matrix_by_name(seq, bytes_):
    assert cost.score_bytes(make(batch=4, heads=32, seq_q=seq)) == bytes_


def test_flash_adds_output_and_lse():
    problem = make(heads=16, seq_q=8192, head_dim=128)
    assert cost.predicted_peak_bytes(problem, "flash") == (32 << 20) + (512 << 10)
