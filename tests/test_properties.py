"""Any small problem at all: each path that says it runs it is right by the project's own rule, forward and backward; each
other says why in words; nothing raises. What is compiled for seconds has fixed cases in test_paths.py."""

from __future__ import annotations

from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.measure.accuracy import judge, truth
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.trial import Trials, silent
from attnlab.paths import PATHS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, AttentionProblem

CPU = torch.device("cpu")


@cache
def trials():
    return Trials(CPU)


@st.composite
def problems(draw):
    seq_q, seq_kv = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    batch, kv_heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    lengths = None
    if draw(st.booleans()):
        seq_kv = seq_q
        lengths = tuple(draw(st.lists(st.integers(0, seq_q), min_size=batch, max_size=batch).filter(any)))
    return AttentionProblem(
        batch=batch,
        seq_q=seq_q,
        seq_kv=seq_kv,
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        head_dim=draw(st.integers(1, 80)),
        dtype=draw(st.sampled_from(list(DTYPE_BYTES))),
        causal=draw(st.booleans()),
        direction=draw(st.sampled_from(DIRECTIONS)),
        window=draw(st.one_of(st.none(), st.integers(1, 50))),
        lengths=lengths,
    )


@settings(max_examples=50)
@given(problems(), st.integers(0, 9))
def test_a_path_is_right_or_says_why_not(problem, seed):
    inputs = make_inputs(problem, CPU, seed)
    exact = truth(problem, *inputs, seed=seed)
    ran = []
    for name in PATHS:
        if trials().paths[name].compiles:
            continue
        verdict = trials().verdict(name, problem, silent)
        if verdict.reason:
            assert "\n" not in verdict.reason and len(verdict.reason.split()) > 3, (name, verdict.reason)
            continue
        outputs = make_call(verdict.path.build(problem), problem, *inputs)()
        assert judge(exact.errors(outputs), exact.standard, problem.dtype) == "", name
        ran.append(name)
    assert {"standard", "sdpa-math"} <= set(ran)
