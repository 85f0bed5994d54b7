"""What counts as a wrong answer: twice the error that standard attention makes in the same dtype, no fixed bound."""

import math

import pytest
import torch

from attnlab.measure.accuracy import STANDARD_FACTOR, judge, truth
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.paths.base import load
from attnlab.problem import DTYPE_BYTES, FORWARD, FORWARD_BACKWARD, AttentionProblem

CPU = torch.device("cpu")


def f16(dtype="bfloat16", **more):
    return AttentionProblem(**{"batch": 2, "seq_q": 1024, "heads": 4, "head_dim": 128, "dtype": dtype, **more})


def judged(problem, path, scale=1.0):
    """(verdict, error of the first output, error of standard) of a path whose softmax scale is off by a factor."""
    q, k, v, grad_out = make_inputs(problem, CPU)
    exact = truth(problem, q, k, v, grad_out)
    attention = load(path, CPU).build(problem)
    outputs = make_call(lambda q, k, v: attention(q * scale, k, v), problem, q, k, v, grad_out)()
    errors = exact.errors(outputs)
    first = problem.outputs[0]
    return judge(errors, exact.standard, problem.dtype), errors[first], exact.standard[first]


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize("direction", [FORWARD, FORWARD_BACKWARD])
@pytest.mark.parametrize("path", ["standard", "sdpa-flash", "sdpa-math"])
def test_f16_healthy_paths_pass_and_a_scale_that_is_off_fails(path, direction, dtype):
    problem = f16(dtype, seq_q=256, direction=direction)
    assert judged(problem, path)[0] == ""
    verdict, error, _ = judged(problem, path, scale=1.1)
    assert verdict.startswith(f"wrong answer: {problem.outputs[0]} is ") and error > 0.01


def test_f16_the_bound_is_what_standard_attention_does_with_these_inputs():
    verdict, error, standard = judged(f16(), "standard")
    assert verdict == "" and error == pytest.approx(standard, rel=0.3)
    assert 1e-3 < standard < 1e-2  # bfloat16 on 1,024 keys of normal data
    assert judge({"O": STANDARD_FACTOR * standard}, {"O": standard}, "bfloat16") == ""
    assert judge({"O": 2.1 * standard}, {"O": standard}, "bfloat16") != ""


def test_f16_the_first_rows_of_a_causal_problem_do_not_hide_the_later_ones():
    """The first is one V, the last the mean of thousands: in one norm over all rows nobody would see the last."""
    problem = f16(batch=1, seq_q=4096, heads=1, causal=True)
    verdict, error, standard = judged(problem, "sdpa-flash", scale=1.1)
    assert verdict.startswith("wrong answer: O is ") and error > 5 * standard
    assert judged(problem, "sdpa-flash")[0] == ""


def test_numbers_that_are_not_finite_are_named_and_never_equal():
    assert "not finite" in judge({"O": math.inf}, {"O": 1.0}, "bfloat16")
    assert judge({"O": math.nan}, {"O": 1.0}, "bfloat16") != ""
    assert judge({"O": 0.0, "dK": math.inf}, {"O": 1.0}, "float16") != ""


def test_a_row_that_sees_no_key_is_zero_in_both():
    problem = AttentionProblem(
        batch=1, seq_q=5, seq_kv=2, heads=1, head_dim=64, dtype="float16", causal=True, direction=FORWARD_BACKWARD
    )
    assert judged(problem, "standard")[0] == ""


@pytest.mark.parametrize("changes", [{}, {"causal": True}, {"window": 9}], ids=str)
def test_rows_of_a_padded_batch_are_sampled_among_its_tokens(changes):
    problem = f16(batch=3, seq_q=64, heads=2, direction=FORWARD_BACKWARD, lengths=(64, 5, 0), **changes)
    inputs = make_inputs(problem, CPU)
    exact = truth(problem, *inputs)
    assert (1, 4, 1) in exact.queries and (1, 4, 1) in exact.keys  # the last token of the last sequence that has one
    assert all(i < problem.lengths[b] for b, i, _ in (*exact.queries, *exact.keys))
    for t in inputs:  # what stands in the padding changes nothing
        with torch.no_grad():
            t[1, 5:] = t[2] = torch.nan
    again = truth(problem, *inputs)
    assert torch.equal(again.out, exact.out) and all(map(torch.equal, again.grads, exact.grads))
    errors = exact.errors(make_call(load("standard", CPU).build(problem), problem, *inputs)())
    assert judge(errors, exact.standard, problem.dtype) == ""


def test_a_padding_that_is_seen_does_not_pass():
    problem = f16(seq_q=64, lengths=(64, 5))
    inputs = make_inputs(problem, CPU)
    exact = truth(problem, *inputs)
    unpadded = load("standard", CPU).build(f16(seq_q=64))
    errors = exact.errors(make_call(unpadded, problem, *inputs)())
    assert judge(errors, exact.standard, problem.dtype).startswith("wrong answer: O is ")
