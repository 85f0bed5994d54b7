"""FLOPs and bytes, against counting them one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import cost
from attnlab.problem import BACKWARD, DIRECTIONS, FORWARD_BACKWARD, AttentionProblem


def make(**changes):
    return AttentionProblem(**{"batch": 1, "seq_q": 128, "heads": 1, "head_dim": 64, **changes})


plain = st.builds(
    make,
    batch=st.integers(1, 3),
    seq_q=st.integers(1, 20),
    seq_kv=st.integers(1, 20),
    heads=st.just(4),
    kv_heads=st.sampled_from([1, 2, 4]),
    head_dim=st.integers(1, 9),
    causal=st.booleans(),
    window=st.one_of(st.none(), st.integers(1, 45)),
    direction=st.sampled_from(DIRECTIONS),
)


@st.composite
def padded(draw):
    problem = draw(plain)
    lengths = st.lists(st.integers(0, problem.seq_q), min_size=problem.batch, max_size=problem.batch)
    return replace(problem, seq_kv=problem.seq_q, lengths=tuple(draw(lengths.filter(any))))


masks = st.one_of(plain, padded())


def counted(problem):
    """The pairs that mask, window and lengths leave, (batch, query, key), one by one."""
    q, kv, reach = problem.seq_q, problem.seq_kv, problem.window or 1000
    lengths = problem.lengths or (max(q, kv),) * problem.batch
    return [(b, i, j) for b in range(problem.batch) for i in range(min(q, lengths[b])) for j in range(min(kv, lengths[b]))
            if abs(j - i - kv + q) < reach and (j - i <= kv - q or not problem.causal)]  # fmt: skip


@given(masks)
def test_pairs_flops_and_bytes_against_counting(problem):
    pairs = counted(problem)
    assert cost.batch_pairs(problem) == len(pairs)
    if problem.lengths is None:
        assert cost.visible_pairs(problem) * problem.batch == len(pairs)
    multiply_adds = problem.heads * problem.head_dim
    products = {"forward": 2, "forward+backward": 7, "backward": 5}[problem.direction]
    assert cost.flops(problem) == products * 2 * multiply_adds * len(pairs)
    assert cost.dense_flops(problem) == products * 2 * multiply_adds * problem.batch * problem.seq_q * problem.seq_kv
    assert cost.recompute_flops(problem) == (2 * multiply_adds * len(pairs) if problem.backward else 0)

    row = problem.head_dim * 2  # bytes of one position of one head in bfloat16
    queries = len({(b, i) for b, i, _ in pairs}) * problem.heads
    keys = len({(b, j) for b, _, j in pairs}) * problem.kv_heads
    all_queries = problem.tokens * problem.heads
    all_keys = (problem.batch * problem.seq_kv if problem.lengths is None else problem.tokens) * problem.kv_heads
    forward, backward = problem.direction != "backward", problem.direction != "forward"
    read = (queries + 2 * keys) * forward + (3 * queries + 2 * keys) * backward
    written = all_queries * forward + (all_queries + 2 * all_keys) * backward
    assert (cost.min_read_bytes(problem), cost.min_write_bytes(problem)) == (read * row, written * row)
    assert cost.min_bytes(problem) == (read + written) * row


def test_a_large_padded_batch_is_counted_at_once():
    problem = make(batch=1 << 12, seq_q=1 << 20, lengths=(1 << 20, 0) * (1 << 11))
    assert cost.batch_pairs(problem) == 1 << 51


def test_padding_is_no_work_but_dense_counts_hold_it():
    problem = make(batch=2, seq_q=8, lengths=(5, 3))
    assert cost.flops(problem) == 4 * (25 + 9) * 64
    assert cost.dense_flops(problem) == 4 * 2 * 64 * 64
    assert cost.min_bytes(problem) == 4 * 8 * 64 * 2


def test_the_mask_of_a_padded_batch_is_as_small_as_it_can_be():
    problem = make(batch=2, lengths=(128, 5))
    assert cost.mask_bytes(problem) == 2 * 128
    assert cost.mask_bytes(replace(problem, causal=True)) == 128 * 128  # it hides the padding by itself
    assert cost.mask_bytes(replace(problem, window=9)) == 2 * 128 * 128


def test_packed_paths_hold_tokens_alone():
    half = make(batch=2, lengths=(128, 0))
    whole = make(batch=2)
    assert cost.predicted_peak_bytes(half, "flash-attn-2") * 2 == cost.predicted_peak_bytes(whole, "flash-attn-2")
    assert cost.predicted_peak_bytes(half, "sdpa-efficient") == cost.predicted_peak_bytes(whole, "sdpa-efficient")


def test_pairs_of_the_longest_sequence_come_at_once():
    problem = make(seq_q=1 << 24, causal=True, window=4096)
    assert cost.visible_pairs(problem) == 4096 * (1 << 24) - 4095 * 4096 // 2  # a full window each, less a triangle


def test_f18_causal_flops_are_exact_when_lengths_differ():
    problem = make(batch=2, heads=16, seq_q=128, seq_kv=1024, causal=True)
    assert cost.visible_pairs(problem) == 122_944
    assert cost.flops(problem) == 1_007_157_248
    assert cost.dense_flops(problem) == 1_073_741_824


@pytest.mark.parametrize(
    ("changes", "pairs"),
    [
        ({"seq_q": 1, "seq_kv": 1024}, 1024),  # decoding: the last query sees all
        ({"seq_q": 128, "seq_kv": 1024, "window": 256}, 128 * 256),
        ({"seq_q": 1024, "seq_kv": 128}, 128 * 129 // 2),  # the first 896 queries see nothing
        ({"seq_q": 1024, "seq_kv": 128, "window": 1}, 128),
    ],
)
def test_f18_its_kind_on_paper(changes, pairs):
    problem = make(heads=8, kv_heads=2, causal=True, **changes)
    assert cost.flops(problem) == 4 * 8 * pairs * 64  # query heads, whatever the KV heads


def test_f18_square_causal_is_half_within_a_hair():
    problem = make(seq_q=4096, causal=True)
    assert abs(cost.flops(problem) / (cost.dense_flops(problem) / 2) - 1) < 3e-4


def test_f13_the_known_count():
    assert cost.flops(make(batch=4, heads=32, seq_q=4096, head_dim=128)) == 1_099_511_627_776


def test_backward_adds_five_products():
    forward = make()
    assert cost.flops(make(direction=FORWARD_BACKWARD)) * 2 == cost.flops(forward) * 7
    assert cost.recompute_flops(make(direction=FORWARD_BACKWARD)) * 7 == cost.flops(make(direction=FORWARD_BACKWARD))
    assert cost.flops(make(direction=BACKWARD)) * 2 == cost.flops(forward) * 5


@pytest.mark.parametrize("path", ["standard", "flash", "sdpa-math"])
def test_a_backward_pass_alone_needs_what_the_forward_pass_has_saved(path):
    both = cost.predicted_peak_bytes(make(seq_q=4096, direction=FORWARD_BACKWARD), path)
    alone = make(seq_q=4096, direction=BACKWARD)
    together = cost.predicted_peak_bytes(alone, path) + cost.saved_bytes(alone, path)
    assert both == pytest.approx(together, rel=0.1)
    assert cost.saved_bytes(make(), path) == cost.saved_bytes(make(direction=FORWARD_BACKWARD), path) == 0


@pytest.mark.parametrize(("seq", "bytes_"), [(512, 67_108_864), (8192, 17_179_869_184)])
def test_the_score_matrix_by_name(seq, bytes_):
    assert cost.score_bytes(make(batch=4, heads=32, seq_q=seq)) == bytes_


@pytest.mark.parametrize(("seq", "score_mb"), [(512, 67.1), (8192, 17_179.9)])
def test_standard_moves_the_scores_six_times(seq, score_mb):
    problem = make(batch=4, heads=32, seq_q=seq, head_dim=128)
    steps = {step.name: step for step in cost.standard_steps(problem)}
    assert list(steps) == ["copy of Q", "copy of K", "QKᵀ", "scale", "softmax", "copy of V", "AV"]
    assert round(steps["softmax"].write_bytes / 1e6, 1) == score_mb
    of_scores = [steps["QKᵀ"].write_bytes, steps["scale"].moved_bytes, steps["softmax"].moved_bytes]
    between = sum(of_scores) + steps["AV"].read_bytes - cost.key_bytes(problem)
    assert between == 6 * cost.score_bytes(problem)
    assert sum(s.moved_bytes for s in steps.values()) == between + 10 * cost.query_bytes(problem)


def test_one_batch_item_needs_no_copy_and_a_mask_two_passes_more():
    plain = cost.standard_steps(make(heads=8))
    assert [step.name for step in plain] == ["QKᵀ", "scale", "softmax", "AV"]
    masked = cost.standard_steps(make(heads=8, window=5))
    assert [step.name for step in masked] == ["QKᵀ", "scale", "copy of scores", "mask", "softmax", "AV"]
    more = sum(s.moved_bytes for s in masked) - sum(s.moved_bytes for s in plain)
    assert more == 4 * cost.score_bytes(make(heads=8)) + 128 * 128
    assert cost.input_bytes(make(window=5)) - cost.input_bytes(make()) == 128 * 128


def test_flash_adds_output_and_lse():
    problem = make(heads=16, seq_q=8192, head_dim=128)
    assert cost.predicted_peak_bytes(problem, "flash") == (32 << 20) + (512 << 10)


@pytest.mark.parametrize(
    ("path", "measured_mib", "within", "changes"),
    [
        ("standard", 1152, 0.05, {"seq_q": 1024}),  # products keep the copies of Q and K
        ("standard", 16_890, 0.05, {"causal": True, "kv_heads": 8}),
        ("flash-attn-2", 836, 0.1, {"causal": True, "kv_heads": 8}),
        ("flash-attn-4", 710, 0.1, {"causal": True, "kv_heads": 8}),
        ("flash-attn-4", 774, 0.1, {"causal": True}),
        ("sdpa-cudnn", 772, 0.1, {}),
    ],
)
def test_the_plan_is_what_an_h200_was_seen_to_take(path, measured_mib, within, changes):
    """`python tests/gpu/memory.py`, batch 4, heads 32, dim 128, bfloat16, forward + backward; torch 2.11."""
    shape = {"batch": 4, "heads": 32, "head_dim": 128, "seq_q": 4096, "direction": FORWARD_BACKWARD}
    problem = make(**{**shape, **changes})
    assert cost.predicted_peak_bytes(problem, path) / 2**20 == pytest.approx(measured_mib, rel=within)


def test_the_lines_of_standard_attention_move_what_its_steps_move():
    problem = AttentionProblem(batch=2, seq_q=96, seq_kv=128, heads=4, kv_heads=2, head_dim=32, causal=True)
    steps, lines = cost.standard_steps(problem), cost.standard_operations(problem)
    assert [line.name for line in lines] == ["K and V for each query head", "QKᵀ", "scale", "mask", "softmax", "AV"]
    assert sum(line.moved_bytes for line in lines) == sum(step.moved_bytes for step in steps)
    assert cost.standard_operations(replace(problem, direction="forward+backward")) == lines
