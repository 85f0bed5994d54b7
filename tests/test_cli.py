import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from samples import F25

from attnlab import arguments, cli, export, growth, summary, table
from attnlab.problem import AttentionProblem

ROOT = Path(__file__).resolve().parent.parent
FAKE_WORKER = shlex.join([sys.executable, str(ROOT / "tests" / "fake_worker.py")])
SMALL = ("--batch", "1", "--heads", "2", "--dim", "32", "--dtype", "float32")


@pytest.fixture
def environment(tmp_path):
    def make(fake=None):
        variables = {**os.environ, "ATTNLAB_HOME": str(tmp_path / "home"), "PYTHONIOENCODING": "utf-8"}
        if fake is not None:
            variables |= {"ATTNLAB_WORKER": FAKE_WORKER, "FAKE_WORKER": json.dumps(fake)}
        return variables

    return make


def attnlab(*words, env, timeout=120):
    command = [sys.executable, "-m", "attnlab", *words]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        timeout=timeout,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_every_command_has_what_does_its_work():
    assert tuple(cli.RUN) == tuple(arguments.COMMANDS)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plan", "--gpu", "H200"], 0, "longest sequence"),
        (["roofline", "--gpu", "H200"], 0, "TFLOP/s"),
        (["export", "h200", "--html", "run.html"], 1, "plotly is not installed in this Python: python -m pip install -r"),
    ],
)
def test_a_python_without_the_packages_runs_what_needs_none_and_names_what_it_lacks(tmp_path, words, code, said):
    """As for whoever forgot the virtual environment. `doctor` stands on the same imports."""
    env = {"PATH": os.environ["PATH"], "ATTNLAB_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-S", "-m", "attnlab", *words]  # -S: no site-packages
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    told = done.stderr if code else done.stdout
    assert done.returncode == code and said in told and "Traceback" not in done.stderr
    assert not code or told.count("\n") == 1


# compare, with a worker that is not there


class Obedient:
    """Stands for a WorkerProcess: says hello, keeps what it is sent, and answers a compare at once."""

    def __init__(self, kind):
        self.kind, self.sent = kind, []

    def __call__(self, command, inbox):
        self.inbox = inbox
        self.say(event="hello", device={"kind": self.kind})
        return self

    def say(self, **message):
        self.inbox.put(("line", self, json.dumps(message).encode() + b"\n"))

    def send(self, message):
        self.sent.append(message)
        for step in range(message["steps"]):
            self.say(event="round", step=step, standard_ms=2.0 + step, flash_ms=0.5)
        self.say(event="done", id=message["id"], cancelled=False)

    def end(self, grace_s):
        return "exit code 0"


@pytest.mark.parametrize(
    ("words", "kind", "dtype"),
    [([], "cpu", "float32"), ([], "cuda", "bfloat16"), (["--dtype", "float16"], "cpu", "float16")],
)
def test_compare_asks_for_the_dtype_that_fits_the_device_unless_told(words, kind, dtype, monkeypatch):
    monkeypatch.setattr(cli, "WorkerProcess", worker := Obedient(kind))
    assert cli.main(["compare", *words]) == 0
    (command,) = worker.sent
    asked = AttentionProblem(batch=4, seq_q=512, heads=32, head_dim=128, dtype=dtype)
    assert AttentionProblem.from_json(command["problem"]) == asked
    assert (command["flash"], command["steps"]) == ("flash", 5)


def test_compare_takes_as_many_steps_as_it_is_told_and_keeps_the_first_to_itself(monkeypatch, capsys):
    monkeypatch.setattr(cli, "WorkerProcess", Obedient("cpu"))
    assert cli.main(["compare", "--steps", "3"]) == 0
    assert capsys.readouterr().out == (
        "Step 1\nNormal Attention : 3.00 ms\nFlashAttention   : 0.50 ms\n"
        "Step 2\nNormal Attention : 4.00 ms\nFlashAttention   : 0.50 ms\n"
    )


# Commands, in a process of their own


def test_compare_prints_three_lines_a_round(environment):
    ran = attnlab("compare", *SMALL, "--seq", "64", env=environment())
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 12
    for step in range(1, 5):
        title, normal, flash = lines[3 * step - 3 : 3 * step]
        assert title == f"Step {step}"
        assert re.fullmatch(r"Normal Attention : \d+\.\d\d ms", normal)
        assert re.fullmatch(r"FlashAttention   : \d+\.\d\d ms", flash)


def test_compare_with_a_path_that_cannot_run_says_why(environment):
    ran = attnlab("compare", *SMALL, "--seq", "64", "--flash", "flash-attn-2", env=environment())
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "flash-attn-2" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["compare"], ["sweep", "--seqs", "128"]])
@pytest.mark.parametrize("worker", ["/no/such/program", "false"])
def test_worker_that_cannot_start_is_one_line(command, worker, environment):
    ran = attnlab(*command, env=environment() | {"ATTNLAB_WORKER": worker})
    assert ran.returncode == 1
    assert "worker" in ran.stderr or worker in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_sweep_measures_for_real_and_writes_strict_json(environment, tmp_path):
    out = tmp_path / "run.json"
    ran = attnlab("sweep", *SMALL, "--seqs", "64,128", "--no-refine", "--causal", "--json", str(out), env=environment())
    assert ran.returncode == 0, ran.stderr
    run = export.run_from_text(out.read_text(encoding="utf-8"), recorded=False)
    assert run.sweep == arguments.sweep_of(
        arguments.parse(["sweep", *SMALL, "--seqs", "64,128", "--no-refine", "--causal"]), run.device.kind
    )
    assert {(m.path, m.seq): m.status for m in run.measurements} == {
        (path, seq): "ok" for path in ("standard", "flash") for seq in (64, 128)
    }
    assert len(re.findall(r"^\[\d/4\] ", ran.stdout, flags=re.M)) == 4
    assert "At sequence 128" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_out_of_memory_is_a_result(environment):
    fake = {"oom_at": ["standard", 512]}
    ran = attnlab("sweep", "--seqs", "128,512", "--try-oom", env=environment(fake))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("standard runs out of memory at 512.\n")
    assert "bfloat16" in ran.stdout  # what fits a GPU, and the fake worker says that it has one


def test_fault_is_a_result_and_the_sweep_goes_on(environment):
    ran = attnlab("sweep", "--seqs", "128,256", env=environment({"die_at": ["flash", 128]}))
    assert ran.returncode == 0, ran.stderr
    assert "At sequence 256 flash is " in ran.stdout and "flash failed at 128" in ran.stdout


@pytest.mark.parametrize("task", ["exactness", "determinism", "anatomy"])  # tests/test_examine.py has them all
def test_check_prints_verdicts_and_writes_the_run(environment, tmp_path, task):
    out = tmp_path / "look.json"
    ran = attnlab("check", "--task", task, *SMALL, "--seqs", "128", "--json", str(out), env=environment())
    assert ran.returncode == 0, ran.stderr
    assert "✓ PASS" in ran.stdout and "verdict" in ran.stdout
    assert not {"faster", "slower", "speed-up"} & set(ran.stdout.split())
    run = export.run_from_text(out.read_text(encoding="utf-8"))
    assert run.sweep.task == task and all(m.findings for m in run.measurements)


def test_record_with_a_task_writes_what_the_exactness_page_opens(environment, tmp_path):
    out = tmp_path / "recorded" / "cpu-exactness.json"
    out.parent.mkdir()
    ran = attnlab("record", "--task", "exactness", *SMALL, "--seqs", "128,256", "--out", str(out), env=environment())
    assert ran.returncode == 0, ran.stderr
    run = export.recorded_runs(out.parent)[0]["cpu-exactness"]
    assert run.sweep.task == "exactness" and run.mark.startswith("recorded on ")
    assert "both agree with float64 to 1e-" in ran.stdout


def test_record_writes_what_replay_opens(environment, tmp_path):
    out = tmp_path / "data" / "h200.json"
    out.parent.mkdir()
    ran = attnlab("record", "--seqs", "128,4096", "--out", str(out), env=environment({}))
    assert ran.returncode == 0, ran.stderr
    run = export.recorded_runs(out.parent)[0]["h200"]
    assert run.mark.startswith("recorded on NVIDIA H200, 20")
    assert [m.seq for m in run.measurements if m.path == "flash"] == [128, 4096]


def test_what_keeps_the_history_from_being_written_is_said(environment, tmp_path):
    (tmp_path / "file").write_text("")
    env = environment({}) | {"ATTNLAB_HOME": str(tmp_path / "file" / "below")}
    ran = attnlab("sweep", "--seqs", "128", "--no-refine", env=env)
    assert ran.returncode == 0 and "At sequence 128" in ran.stdout
    assert "runs are kept in memory and are lost" in ran.stderr and ran.stderr.count("\n") == 1


def test_interrupt_ends_the_worker_too(environment):
    env = environment({"hang_at": ["standard", 128]})
    process = subprocess.Popen(
        [sys.executable, "-m", "attnlab", "sweep", "--seqs", "128"],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "batch 4" in process.stdout.readline()  # the run has begun
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "python -m attnlab sweep: interrupted\n"
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_reader_that_leaves_early_gets_no_traceback(environment):
    command = f"{shlex.quote(sys.executable)} -m attnlab sweep --seqs 128,256 | head -n 1"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=60, check=False
    )
    assert "NVIDIA H200" in ran.stdout
    assert "Traceback" not in ran.stderr


def test_terminal_shows_one_table_that_fills_in_place(environment):
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "attnlab", "sweep", "--seqs", "128,256", "--no-refine"],
        cwd=ROOT, env=environment({"delay_s": 0.3}) | {"COLUMNS": "160", "LINES": "40"}, stdout=slave, stderr=slave,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(slave)
    text = read_all(master)
    assert process.wait(30) == 0, text
    screen = emulate(text)
    assert screen.count("speed-up") == 1, screen  # the table that stays, nothing left over from those before
    assert text.count("speed-up") > 2
    assert "points" not in screen
    assert screen.splitlines()[0].startswith("NVIDIA H200")
    assert "At sequence 256" in screen


def read_all(descriptor):
    parts = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def emulate(text):
    """What is left on the screen: lines, the cursor sent up and the rest erased as the command line does."""
    lines = [""]
    for part in re.split(r"(\x1b\[\d+F\x1b\[J|\r\n)", text):
        if part == "\r\n":
            lines.append("")
        elif part.startswith("\x1b"):
            up = int(re.search(r"\d+", part).group())
            lines = [*lines[: len(lines) - 1 - up], ""]
        else:
            lines[-1] += part
    return "\n".join(lines)


# The table


def test_table_rows():
    rows = table.rows(F25)
    assert [row.split() for row in rows] == [
        ["sequence", "standard", "flash", "speed-up", "standard", "adds", "flash", "adds"],
        ["1,024", "0.120", "ms", "0.0500", "ms*", "–", "10", "B", "–"],
        ["65,536", "out", "of", "memory", "(predicted)", "5.00", "ms", "–", "–"],
        ["131,072", "skipped", "20.0", "ms", "–", "–"],
        ["*", "too", "short", "to", "compare:", "the", "host's", "launch", "cost", "dominates"],
    ]


@pytest.mark.parametrize(("low", "high", "words"), [(0.98, 1.02, " ±2 %"), (0.996, 1.004, " ±0.4 %"), (None, None, "")])
def test_spread_is_half_the_interval_and_never_rounds_to_nothing(low, high, words):
    m = replace(F25.get("flash", 65_536), device_ms=1.0, device_ms_low=low, device_ms_high=high)
    assert table.spread(m) == words


def test_footnotes_say_in_which_state_the_cache_was():
    cold, hot = replace(F25.get("flash", 65_536), l2="cold"), replace(F25.get("flash", 131_072), l2="hot")
    assert table.footnotes(replace(F25, measurements=(cold,)))[-1] == "L2 cache: cold, flushed before each sample"
    both = table.footnotes(replace(F25, measurements=(cold, hot)))[-1]
    assert both.endswith("; hot, as the call before left it")
    assert not any("cache" in line for line in table.footnotes(F25))  # a host, or a run from before it was noted


def test_title_names_the_queries_where_they_are_not_as_many_as_keys():
    assert table.title(replace(F25, sweep=replace(F25.sweep, seq_q=1))) == table.title(F25) + ", queries 1"


def test_what_the_curves_say_stands_under_the_sentence():
    sentence, *lines = table.said(F25)
    assert sentence == summary.sentence(F25)
    assert lines == list(growth.lines(F25))
    run = export.recorded_runs()[0]["h200"]
    assert len(table.said(run)) == 5


def test_point_line_of_what_was_not_measured_gives_the_reason():
    oom = F25.get("standard", 65_536)
    assert table.point_line(oom).endswith("out of memory (predicted)   out of memory, asked for 64 GiB")


def test_claims_prints_a_verdict_for_each_and_a_count(environment):
    ran = subprocess.run(
        [sys.executable, "-m", "attnlab", "claims", "--only", "at-512", "--only", "fa2-rate"],
        cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stderr == ""
    assert "About 3× at 512" in ran.stdout and "it speaks of A100; this is NVIDIA H200" in ran.stdout
    assert ran.stdout.rstrip().splitlines()[-1].startswith("Of 2 claims ")
    refused = subprocess.run(
        [sys.executable, "-m", "attnlab", "claims", "--only", "faster"],
        cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1 and "at-512" in refused.stderr


def test_the_same_sweep_on_several_devices(environment, tmp_path):
    env = environment(fake={}) | {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    line = ("sweep", *SMALL, "--seqs", "128,256", "--no-refine", "--devices", "all", "--json", str(tmp_path / "run.json"))
    ran = attnlab(*line, env=env)
    assert ran.returncode == 0, ran.stderr
    assert "GPU GPU-a  [4/4]" in ran.stdout and "GPU GPU-b  [4/4]" in ran.stdout
    runs = [json.loads((tmp_path / f"run-{place}.json").read_text())["run"] for place in (0, 1)]
    assert [run["device"]["uuid"] for run in runs] == ["GPU-a", "GPU-b"]
    refused = attnlab("sweep", *SMALL, "--devices", "2", env=env)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "legal: all" in refused.stderr
