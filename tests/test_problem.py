"""AttentionProblem: what can be, what cannot, and that a refusal names the legal values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.problem import DIRECTIONS, DTYPE_BYTES, AttentionProblem, ProblemError, legal_kv_heads


def make(**changes):
    return AttentionProblem(**{"batch": 1, "seq_q": 128, "heads": 6, "head_dim": 64, **changes})


def test_self_attention_is_the_default():
    problem = make()
    assert (problem.seq_kv, problem.kv_heads) == (128, 6)


@pytest.mark.parametrize(("heads", "kv_heads", "legal"), [(6, 4, "1, 2, 3, 6"), (4, 8, "1, 2, 4")])
def test_f09_kv_heads_that_do_not_divide_are_refused_with_the_list(heads, kv_heads, legal):
    with pytest.raises(ProblemError) as refusal:
        make(heads=heads, kv_heads=kv_heads)
    text = str(refusal.value)
    assert f"kv_heads is {kv_heads}" in text and f"heads = {heads}" in text and text.endswith(legal)


def test_f09_no_kv_heads_from_outside_is_refused():
    with pytest.raises(ProblemError, match=r"kv_heads is 0.*legal for 6 heads: 1, 2, 3, 6"):
        AttentionProblem.from_json({"batch": 1, "seq_q": 128, "heads": 6, "kv_heads": 0, "head_dim": 64})


def test_f09_a_divisor_runs():
    assert make(kv_heads=3).kv_heads == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 0}, "batch is 0; legal: whole numbers from 1"),
        ({"batch": True}, "batch is True"),
        ({"seq_q": 2.5}, "seq_q is 2.5; legal: whole numbers from 1"),
        ({"seq_q": 1 << 40}, "legal: whole numbers from 1 to 16,777,216"),
        ({"head_dim": "64"}, "head_dim is '64'"),
        ({"head_dim": 4096}, "head_dim is 4096; legal: whole numbers from 1 to 1,024"),
        ({"kv_heads": -1}, "kv_heads is -1"),
        ({"dtype": "int8"}, "legal: bfloat16, float16, float32"),
        ({"dtype": ["float16"]}, "legal: bfloat16, float16, float32"),
        ({"causal": 1}, "causal is 1; legal: true, false"),
        ({"window": 0}, "window is 0; legal: whole numbers from 1 to 16,777,216, or none"),
        ({"window": True}, "window is True; legal: whole numbers"),
        ({"window": 2.5}, "window is 2.5; legal: whole numbers"),
        ({"direction": "sideways"}, "legal: forward, forward+backward, backward"),
        (
            {"lengths": [128]},
            "lengths is [128]; legal: one whole number from 0 to 128 for each sequence of the batch (1)",
        ),
        ({"lengths": (128, 5)}, "lengths has 2 for a batch of 1; legal: one whole number from 0 to 128"),
        ({"lengths": (129,)}, "lengths holds 129; legal: one whole number from 0 to 128"),
        ({"lengths": (-1,)}, "lengths holds -1"),
        ({"lengths": (True,)}, "lengths holds True"),
        ({"lengths": (0,)}, "lengths are all 0; legal:"),
        (
            {"lengths": (5,), "seq_kv": 256},
            "lengths need self-attention, and seq_q is 128 where seq_kv is 256; legal: as many",
        ),
        ({"batch": 1 << 20, "heads": 1 << 14, "kv_heads": 1, "seq_q": 1 << 24}, "more than a 64-bit index can address"),
    ],
)
def test_refusals_are_one_line_that_names_the_legal_values(changes, words):
    with pytest.raises(ProblemError) as refusal:
        make(**changes)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "data", [None, [], "x", {}, {"batch": 1}, {"batch": 1, "seq_q": 1, "heads": 1, "head_dim": 1, "sequence": 4}]
)
def test_from_json_refuses_what_is_no_problem(data):
    with pytest.raises(ProblemError):
        AttentionProblem.from_json(data)


plain_problems = st.integers(1, 64).flatmap(
    lambda heads: st.builds(
        AttentionProblem,
        batch=st.integers(1, 64),
        seq_q=st.integers(1, 4096),
        seq_kv=st.integers(1, 4096),
        heads=st.just(heads),
        kv_heads=st.sampled_from(legal_kv_heads(heads)),
        head_dim=st.integers(1, 1024),
        dtype=st.sampled_from(list(DTYPE_BYTES)),
        causal=st.booleans(),
        direction=st.sampled_from(DIRECTIONS),
        window=st.one_of(st.none(), st.integers(1, 8192)),
    )
)


@st.composite
def padded_problems(draw):
    batch, seq = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(0, seq), min_size=batch, max_size=batch).filter(any))
    changes = {"causal": draw(st.booleans()), "window": draw(st.one_of(st.none(), st.integers(1, 45)))}
    return make(batch=batch, seq_q=seq, lengths=tuple(lengths), **changes)


problems = st.one_of(plain_problems, padded_problems())


@given(problems)
def test_json_round_trip(problem):
    assert AttentionProblem.from_json(json.loads(json.dumps(problem.to_json()))) == problem


@given(
    st.dictionaries(
        st.sampled_from(["batch", "seq_q", "heads", "kv_heads", "head_dim", "dtype", "causal", "window", "lengths"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=5),
            st.lists(st.integers(), max_size=2),
        ),
    )
)
def test_anything_else_is_a_one_line_refusal_or_a_problem(data):
    try:
        AttentionProblem.from_json(data)
    except ProblemError as refusal:
        assert "\n" not in str(refusal)


@given(st.integers(1, 12), st.integers(1, 12), st.booleans(), st.one_of(st.none(), st.integers(1, 14)))
def test_what_a_query_sees_is_what_the_docstring_says(q, kv, causal, window):
    problem = make(seq_q=q, seq_kv=kv, causal=causal, window=window)
    for i in range(q):
        own = i + kv - q
        seen = [j for j in range(kv) if (j <= own or not causal) and (window is None or abs(j - own) < window)]
        assert list(problem.visible(i)) == seen
    assert problem.blind_rows == sum(1 for i in range(q) if not problem.visible(i))
    assert all(not problem.visible(i) for i in range(problem.blind_rows))  # at the top, all of them


@given(padded_problems())
def test_in_a_padded_batch_tokens_see_tokens_of_their_own_sequence(problem):
    assert problem.masked and problem.blind_rows == 0 and problem.tokens == sum(problem.lengths)
    for b, length in enumerate(problem.lengths):
        for i in range(problem.seq_q):
            seen = [
                j
                for j in range(length)
                if (j <= i or not problem.causal) and (problem.window is None or abs(j - i) < problem.window)
            ]
            assert list(problem.visible(i, b)) == (seen if i < length else [])


def test_lengths_keep_their_proportion_at_another_sequence_length():
    problem = make(batch=4, lengths=(128, 77, 1, 0))
    assert problem.at_seq(64).lengths == (64, 39, 1, 0)
    assert problem.at_seq(1024).lengths == (1024, 616, 8, 0)
    assert "lengths" not in make().to_json() and problem.to_json()["lengths"] == [128, 77, 1, 0]


def test_what_a_direction_computes():
    assert make().outputs == ("O",)
    assert make(direction="forward+backward").outputs == ("O", "dQ", "dK", "dV")
    assert make(direction="backward").outputs == ("dQ", "dK", "dV")
