"""What a visitor of a public server may ask for."""

from dataclasses import replace

import pytest

from attnlab.limits import LEGAL, Limits, public
from attnlab.problem import AttentionProblem
from attnlab.sweep import Sweep
from attnlab.ui import shell

PROBLEM = AttentionProblem(batch=1, seq_q=128, heads=2, head_dim=64)


def says(text):
    return lambda name, default: text


@pytest.mark.parametrize("text", ["", "0", " "])
def test_a_server_of_ones_own_has_no_limits(text):
    assert public(says(text)) is None


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("1", Limits()),
        ("seq=4096", Limits(seq=4096)),
        ("seq=256, tokens=512,seconds=5,queue=2", Limits(256, 512, 5, 2)),
    ],
)
def test_the_environment_sets_them(text, limits):
    assert public(says(text)) == limits


@pytest.mark.parametrize(
    "text", ["yes", "seq", "seq=", "seq=0", "seq=-5", "seq=1e3", "seq=²", "depth=3", "seq=5;queue=1", "," * 500]
)
def test_nonsense_names_the_legal_values(text):
    with pytest.raises(ValueError) as refusal:
        public(says(text))
    assert LEGAL in str(refusal.value) and len(str(refusal.value)) < 300


def test_what_is_too_long_is_refused_in_words():
    limits = Limits(seq=1024)
    short, long = Sweep(problem=PROBLEM, seqs=(128, 1024)), Sweep(problem=PROBLEM, seqs=(128, 2048))
    assert limits.refusal(short) == ""
    assert limits.refusal(long) == "this public server measures up to sequence 1,024, not 2,048"
    assert "4,096" in limits.refusal(Sweep(problem=PROBLEM, seqs=(128,), seq_q=4096))


def test_a_batch_of_too_many_tokens_is_refused_in_words():
    limits, four = Limits(seq=1024, tokens=2048), replace(PROBLEM, batch=4)
    assert limits.refusal(Sweep(problem=four, seqs=(128, 512))) == ""
    assert limits.refusal(Sweep(problem=four, seqs=(128, 1024))) == (
        "this public server measures up to 2,048 tokens (batch × sequence), not 4,096"
    )
    assert limits.refusal(Sweep(problem=four, seqs=(128,), seq_q=1024)).endswith("not 4,096"), "of queries too"


def test_a_run_is_cut_to_its_time_and_never_tries_to_run_out_of_memory():
    cut = Limits(budget_s=20).cut(Sweep(problem=PROBLEM, seqs=(128,), budget_s=600, try_oom=True))
    assert (cut.budget_s, cut.try_oom) == (20, False)
    assert Limits(budget_s=20).cut(Sweep(problem=PROBLEM, seqs=(128,), budget_s=3)).budget_s == 3


@pytest.mark.parametrize(("found", "bound"), [(Limits(budget_s=7), {"run_limit_s": 7.0}), (None, {})])
def test_a_run_of_a_visitor_ends_by_the_clock_too(monkeypatch, tmp_path, found, bound):
    monkeypatch.setattr(shell, "_public", lambda: found)
    monkeypatch.setattr(shell, "Lab", lambda store, **how: how)
    monkeypatch.setattr(shell, "Store", lambda home: None)
    made = shell._lab.__wrapped__(None)
    made.pop("worker_command")
    assert made == bound
