"""The reference is attention, written out: held against the shortest formula, chunk by chunk, and its own rounding
against the standard path."""

import math

import pytest
import torch

from attnlab.measure.inputs import make_call, make_inputs
from attnlab.paths import reference
from attnlab.paths.base import hidden_pairs, load
from attnlab.paths.reference import attend, picked, strict_float32
from attnlab.problem import AttentionProblem

CPU = torch.device("cpu")
SHAPE = {"batch": 2, "seq_q": 33, "heads": 4, "kv_heads": 2, "head_dim": 20, "dtype": "float32"}
MASKS = [
    {},
    {"causal": True},
    {"window": 5},
    {"causal": True, "window": 7, "seq_kv": 50},
    {"causal": True, "seq_kv": 20},
]


def every(problem):
    return [(b, h) for b in range(problem.batch) for h in range(problem.kv_heads)]


def formula(problem, q, k, v, grad_out):
    """Autograd in float64 over softmax(QKᵀ / √dim) V, the whole score matrix at once."""
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    n = problem.heads // problem.kv_heads
    queries, keys, values = (t.transpose(1, 2) for t in wide)
    keys, values = keys.repeat_interleave(n, 1), values.repeat_interleave(n, 1)
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(problem.head_dim)
    if problem.masked:
        scores = scores.masked_fill(hidden_pairs(problem, CPU), -torch.inf)
    p = torch.softmax(scores, -1).nan_to_num(0.0)
    blind = problem.blind_rows
    p = torch.cat((torch.zeros_like(p[:, :, :blind]), p[:, :, blind:]), 2)
    out = (p @ values).transpose(1, 2)
    return (out.detach(), *torch.autograd.grad(out, wide, grad_out.double()))


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_it_is_softmax_of_the_scores_times_v_and_its_gradients(mask, monkeypatch):
    monkeypatch.setattr(reference, "CHUNK_ELEMENTS", 7 * 50)  # chunks that end in the middle of the rows
    problem = AttentionProblem(**SHAPE | mask, direction="forward+backward")
    inputs = make_inputs(problem, CPU)
    ours = attend(problem, *inputs, every(problem))
    for name, whole in zip(problem.outputs, formula(problem, *inputs), strict=True):
        assert torch.isfinite(ours[name]).all()
        torch.testing.assert_close(ours[name], picked(problem, name, whole, every(problem)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_rounded_to_the_dtype_it_answers_what_standard_attention_answers(mask):
    problem = AttentionProblem(**SHAPE | mask | {"dtype": "bfloat16", "direction": "forward+backward"})
    inputs, groups = make_inputs(problem, CPU), [(1, 0)]
    exact = attend(problem, *inputs, groups)
    rounded = attend(problem, *inputs, groups, dtype=torch.bfloat16)
    standard = make_call(load("standard", CPU).build(problem), problem, *inputs)()
    for name, whole in zip(problem.outputs, standard, strict=True):
        ours = torch.linalg.vector_norm(rounded[name] - exact[name])
        theirs = torch.linalg.vector_norm(picked(problem, name, whole, groups) - exact[name])
        assert ours == pytest.approx(theirs.item(), rel=0.1), name


def test_the_process_keeps_its_own_precision():
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with strict_float32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
