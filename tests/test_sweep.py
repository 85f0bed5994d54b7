"""The sweep's validation, and JSON both ways."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from attnlab.problem import AttentionProblem, ProblemError
from attnlab.sweep import Sweep, default_sweep

PROBLEM = default_sweep("cuda").problem.at_seq(128)


def test_a_sweep_survives_json():
    sweep = Sweep(problem=PROBLEM, seqs=(512, 128, 128), paths=("flash", "flash", "standard"), budget_s=5)
    assert sweep.seqs == (128, 512) and sweep.paths == ("flash", "standard")
    assert Sweep.from_json(json.loads(json.dumps(sweep.to_json()))) == sweep


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seqs": ()}, "one or more"),
        ({"seqs": (0,)}, "whole numbers from 1"),
        ({"paths": ()}, "standard"),
        ({"paths": ("fast",)}, "sdpa-math"),
        ({"budget_s": 0}, "more than 0"),
        ({"budget_s": float("nan")}, "more than 0"),
        ({"budget_s": True}, "more than 0"),
        ({"refine": "no"}, "refine is 'no'; legal: true, false"),
        ({"try_oom": 7}, "try_oom is 7; legal: true, false"),
    ],
)
def test_a_sweep_that_cannot_be_names_what_is_legal(changes, words):
    with pytest.raises(ProblemError, match=words):
        Sweep(**{"problem": PROBLEM, "seqs": (128,), **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"refine": "no"}, "refine is 'no'"),
        ({"seqs": 128}, "seqs is 128; legal: a list"),
        ({"paths": "flash"}, "paths is 'flash'; legal: a list"),
        ({"budget": 5}, "unknown sweep field 'budget'; legal: problem, seqs, paths, budget_s, try_oom, refine"),
    ],
)
def test_json_that_is_no_sweep_names_what_is_legal(changes, words):
    with pytest.raises(ProblemError, match=words):
        Sweep.from_json({**Sweep(problem=PROBLEM, seqs=(128,)).to_json(), **changes})


def test_lengths_of_shorter_points_are_in_proportion():
    problem = AttentionProblem(batch=3, seq_q=512, heads=2, head_dim=64, lengths=(512, 301, 0))
    sweep = Sweep(problem=problem, seqs=(128, 512))
    assert sweep.at(512) == problem
    assert sweep.at(128) == replace(problem, seq_q=128, seq_kv=128, lengths=(128, 76, 0))
    assert Sweep.from_json(json.loads(json.dumps(sweep.to_json()))) == sweep


def test_lengths_and_one_query_do_not_go_together():
    problem = AttentionProblem(batch=1, seq_q=512, heads=2, head_dim=64, lengths=(301,))
    with pytest.raises(ProblemError, match="lengths need self-attention, and seq_q is 1"):
        Sweep(problem=problem, seqs=(128, 512), seq_q=1)
