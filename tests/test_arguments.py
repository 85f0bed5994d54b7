"""Arguments as a user types them: what is refused and in which words, and what the rest is read into."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab import arguments, cli, verdicts
from attnlab.command_line import PROGRAM, command_line
from attnlab.paths import PATHS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, AttentionProblem, legal_kv_heads
from attnlab.sweep import L2_MODES, TASKS, TIME, Sweep, default_sweep


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "legal: compare, sweep, check, record"),
        ("swep", "compare"),
        ("sweep --batch 0", "legal: whole numbers from 1 to 1,048,576"),
        ("sweep --batch many", "legal: whole numbers from 1 to 1,048,576"),
        ("sweep --bat 1", "--bat is not an option; legal: -h, --help, --batch"),
        ("sweep extra", "extra is not an option; legal: -h, --help, --batch"),
        ("sweep --seqs 128,x", "legal: whole numbers from 1 to 16,777,216, with commas between them"),
        ("sweep --seqs 128,,256", "legal: whole numbers"),
        ("sweep --dtype int8", "legal: bfloat16, float16, float32"),
        ("sweep --paths standard,magic", "'magic'; legal: standard, flash"),
        (
            "sweep --heads 6 --kv-heads 4",
            "kv_heads is 4, which does not divide heads = 6; legal for 6 heads: 1, 2, 3, 6",
        ),
        ("sweep --heads 4 --kv-heads 8", "legal for 4 heads: 1, 2, 4"),
        ("sweep --heads 6 --kv-heads 0", "legal for 6 heads: 1, 2, 3, 6"),
        ("sweep --budget nan", "legal: seconds, more than 0, at most 86,400"),
        ("sweep --budget -1", "legal: seconds"),
        ("sweep --window 0", "legal: whole numbers from 1 to 16,777,216"),
        ("sweep --lengths 5,x", "legal: whole numbers from 0 to 16,777,216, with commas between them"),
        ("sweep --batch 2 --lengths 5", "lengths has 1 for a batch of 2; legal: one whole number from 0"),
        ("sweep --batch 1 --seqs 128 --lengths 129", "lengths holds 129; legal: one whole number from 0 to 128"),
        ("sweep --batch 1 --lengths 5 --seq-q 1", "lengths need self-attention"),
        ("sweep --direction sideways", "legal: forward, forward+backward, backward"),
        ("sweep --window wide", "legal: whole numbers from 1 to 16,777,216"),
        ("sweep --seq-q 0", "legal: whole numbers from 1 to 16,777,216"),
        ("sweep --precision 0", "'0'; legal: half an interval over its median, from 0.001 to 0.5"),
        ("sweep --precision nan", "legal: half an interval over its median"),
        ("sweep --precision sharp", "legal: half an interval over its median"),
        ("sweep --l2 warm", "'warm'; legal: cold, hot"),
        ("sweep --json /no/such/folder/run.json", "legal: a file in a folder that exists"),
        ("sweep --json .", "legal: a file in a folder that exists"),
        ("check --task time", "'time'; legal: exactness, determinism, edges, support"),
        ("check --budget 3", "--budget is not an option; legal: -h, --help, --batch"),
        ("check --dtype int8", "legal: bfloat16, float16, float32"),
        ("record --task speed --out x.json", "'speed'; legal: time, exactness, determinism, edges, support"),
        ("record", "--out"),
        ("record --out /no/such/folder/run.json", "legal: a file in a folder that exists"),
        ("compare --steps 1", "legal: whole numbers from 2 to 100,000"),
        ("compare --flash standard", "legal: flash, flash-attn-2"),
        ("compare --seqs 128", "--seqs is not an option; legal: -h, --help, --batch"),
        ("compare --batch 1048576 --heads 16384 --seq 16777216", "legal: at most 9,223,372,036,854,775,807"),
    ],
)
def test_bad_arguments_get_one_line_and_start_no_worker(line, words, capsys, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(cli, "Lab", refuse)
    monkeypatch.setattr(cli, "WorkerProcess", refuse)
    with pytest.raises(SystemExit) as left:
        cli.main(line.split())
    said = capsys.readouterr()
    assert left.value.code == 2
    assert words in said.err
    assert said.err.count("\n") == 1 and said.out == ""


@st.composite
def sweeps(draw):
    heads = draw(st.integers(1, 64))
    seqs = tuple(sorted(draw(st.sets(st.integers(1, 131_072), min_size=1, max_size=5))))
    problem = AttentionProblem(
        batch=draw(st.integers(1, 64)),
        seq_q=seqs[-1],
        heads=heads,
        kv_heads=draw(st.sampled_from(legal_kv_heads(heads))),
        head_dim=draw(st.integers(1, 256)),
        dtype=draw(st.sampled_from(list(DTYPE_BYTES))),
        causal=draw(st.booleans()),
        direction=draw(st.sampled_from(DIRECTIONS)),
        window=draw(st.one_of(st.none(), st.integers(1, 1 << 24))),
    )
    seq_q = draw(st.one_of(st.none(), st.integers(1, 4096)))
    if problem.batch <= 4 and seq_q is None:
        lengths = st.lists(st.integers(0, seqs[-1]), min_size=problem.batch, max_size=problem.batch).filter(any)
        problem = replace(problem, lengths=tuple(draw(lengths)))
    return Sweep(
        problem=problem,
        seqs=seqs,
        paths=tuple(draw(st.lists(st.sampled_from(list(PATHS)), min_size=1, unique=True))),
        budget_s=draw(st.one_of(st.just(30.0), st.floats(0.001, 86_400))),
        try_oom=draw(st.booleans()),
        refine=draw(st.booleans()),
        seq_q=seq_q,
        precision=draw(st.one_of(st.just(0.01), st.floats(0.001, 0.5))),
        l2=draw(st.sampled_from(L2_MODES)),
    )


def parsed(line):
    """The sweep of a line that command_line wrote."""
    return arguments.sweep_of(arguments.parse(line.removeprefix(PROGRAM).split()), "cpu")


@settings(max_examples=60, deadline=None)
@given(sweeps())
def test_command_line_measures_the_same_again(sweep):
    line = command_line(sweep)
    assert parsed(line) == sweep
    assert shlex.split(line) == line.split()


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_command_line_of_the_default_sweep_holds_on_any_device(kind):
    assert parsed(command_line(default_sweep(kind))) == default_sweep(kind)


@settings(max_examples=30, deadline=None)
@given(sweeps(), st.sampled_from([task for task in TASKS if task != TIME]))
def test_command_line_of_a_look_asks_the_same_again(sweep, task):
    look = replace(verdicts.look(sweep.problem, sweep.seqs, sweep.paths, task=task), seq_q=sweep.seq_q)
    assert parsed(command_line(look)) == look


def test_command_line_is_short_where_it_can_be():
    assert command_line(default_sweep("cpu")) == (
        "python -m attnlab sweep --batch 1 --heads 8 --dim 64 --seqs 128,256,512,1024,2048 --dtype float32"
    )


def test_command_line_says_what_is_not_as_usual():
    sweep = default_sweep("cpu")
    odd = replace(sweep, problem=replace(sweep.problem, window=256), seq_q=1, precision=0.05, l2="hot")
    more = command_line(odd).removeprefix(command_line(sweep))
    assert more == " --window 256 --seq-q 1 --precision 0.05 --l2 hot"


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_what_is_left_open_fits_the_device(kind):
    assert arguments.sweep_of(arguments.parse(["sweep"]), kind) == default_sweep(kind)
