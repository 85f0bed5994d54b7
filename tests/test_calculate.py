"""`python -m attnlab roofline` and `plan`: what is calculated and not measured, as a user types it."""

from __future__ import annotations

import json

import pytest

from attnlab import calculate, cli, hardware
from attnlab.device import Device
from attnlab.problem import AttentionProblem, ProblemError

TEXTBOOK = """\
Seq Len   Standard (ms)   Flash (ms)   Speedup       Std Bound     Flash Bound
    512           0.003        0.003      1.0x   compute-bound   compute-bound
   1024           0.010        0.010      1.0x   compute-bound   compute-bound
   2048           0.041        0.041      1.0x   compute-bound   compute-bound
   4096           0.165        0.165      1.0x   compute-bound   compute-bound
   8192           0.661        0.661      1.0x   compute-bound   compute-bound
"""
CPU = Device(kind="cpu", name="A CPU", uuid="h", total_bytes=8 << 30, free_bytes=6 << 30,
             matmul_tflops=(("float32", 0.5),), copy_tbs=0.02)  # fmt: skip


@pytest.fixture(autouse=True)
def no_worker(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(cli, "Lab", refuse)


def test_the_textbook_table_and_nothing_else(capsys):
    assert cli.main(["roofline", "--textbook"]) == 0
    assert capsys.readouterr().out == TEXTBOOK


def test_the_counted_table_of_a_card(capsys):
    assert cli.main(["roofline", "--gpu", "A100-SXM4-80GB"]) == 0
    said = capsys.readouterr().out
    assert "A100-SXM4-80GB, data sheet: 312 TFLOP/s dense, 2.039 TB/s, ridge at 153 FLOP/B" in said
    assert "source: NVIDIA A100 data sheet, June 2021" in said
    assert "   8192           4.764        0.661      7.2x   memory-bound   compute-bound" in said


def test_this_device_where_none_is_named(capsys, monkeypatch):
    monkeypatch.setattr(cli, "_this_device", lambda *_: CPU)
    assert cli.main(["roofline", "--dtype", "float32"]) == 0
    assert "A CPU, measured: 0.5 TFLOP/s dense, 0.02 TB/s" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        cli.main(["roofline", "--dtype", "float16"])
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.count("\n") == 1 and "no float16 roof is known of A CPU" in said
    assert cli.main(["plan"]) == 0
    assert "A CPU: 8 GiB, host memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("roofline --gpu H2000", "'H2000' is in no data sheet here; legal: GB200, B200"),
        ("roofline --gpu T4", "no bfloat16 roof is known of T4; legal: another dtype"),
        ("roofline --seqs 5,x", "legal: whole numbers from 1 to 16,777,216, with commas"),
        ("plan --gpu H2000", "'H2000' is in no data sheet here; legal: GB200, B200"),
        ("plan --gpu H200 --kv-heads 5", "kv_heads is 5, which does not divide heads = 32"),
        ("plan --gpu H200 --batch 0", "legal: whole numbers from 1 to 1,048,576"),
        ("plan --gpu H200 --dtype int8", "legal: bfloat16, float16, float32"),
        ("plan --gpu H200 --json /no/such/folder/plan.json", "legal: a file in a folder that exists"),
        ("plan --gpu H200 --seqs 5", "--seqs is not an option; legal: -h, --help, --gpu"),
        ("plan --gpu H200 --batch 1048576 --heads 16384 --seq 16777216", "legal: at most 9,223,372,036,854,775,807"),
    ],
)
def test_bad_arguments_get_one_line(line, words, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(line.split())
    said = capsys.readouterr()
    assert left.value.code == 2 and words in said.err
    assert said.err.count("\n") == 1 and said.out == ""


def test_a_plan_as_a_table(capsys):
    assert cli.main(["plan", "--gpu", "A100-SXM4-80GB", "--batch", "4", "--heads", "32", "--dim", "128"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A100-SXM4-80GB: 80 GiB, NVIDIA A100 data sheet, June 2021"
    found = {line[:26].strip(): line[26:].split() for line in lines[3:]}
    assert found["longest sequence"] == ["12,857", "652,809", "9,000"]
    assert found["fits"] == ["no", "yes", "no"]
    assert found["probabilities"] == ["64", "GiB"]


def test_a_plan_as_strict_json(tmp_path, capsys):
    file = tmp_path / "plan.json"
    words = ["plan", "--gpu", "H200", "--seq", "8192", "--kv-heads", "8", "--backward", "--causal", "--json", str(file)]
    assert cli.main(words) == 0

    def refuse(word):
        raise AssertionError(word)

    plan = json.loads(file.read_text(), parse_constant=refuse)
    assert plan["device"]["capacity_bytes"] == 141 << 30 == hardware.memory_bytes("NVIDIA H200")
    problem = AttentionProblem.from_json(plan["problem"])
    assert (problem.kv_heads, problem.seq_kv, problem.direction, problem.causal) == (8, 8192, "forward+backward", True)
    for path in plan["paths"].values():
        assert sum(part["bytes"] for part in path["parts"]) == path["total_bytes"]
        assert path["fits"] == (path["longest_seq"] >= 8192)
    assert "probabilities, saved for backward" in [part["name"] for part in plan["paths"]["standard"]["parts"]]


def test_a_plan_of_what_never_fits_has_null():
    room = calculate.Room(device="tiny", kind="cuda", capacity_bytes=10, source="given")
    found = calculate.plan(AttentionProblem(batch=1, seq_q=64, heads=1, head_dim=64), room)
    assert found["paths"]["flash"]["longest_seq"] is None and not found["paths"]["flash"]["fits"]
    assert "none fits" in calculate.plan_lines(AttentionProblem(batch=1, seq_q=64, heads=1, head_dim=64), room)[-1]


def test_no_roof_is_made_up():
    with pytest.raises(ProblemError, match="no float32 roof is known of Fake"):
        calculate.roof_of(Device(kind="cuda", name="Fake", uuid="u", total_bytes=1, free_bytes=1), "float32")
