"""The worker as its own process: what it says, that nothing else reaches its stream, and that it never stays behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_lab import wait_gone

from attnlab.worker import Worker, legal_device

ROOT = Path(__file__).parent.parent
PROBLEM = {"batch": 1, "seq_q": 512, "heads": 2, "head_dim": 32, "dtype": "float32"}


class Conversation:
    def __init__(self, tmp_path: Path, **env: str):
        environment = {**os.environ, "ATTNLAB_DEVICE": "cpu", "PYTHONPATH": str(ROOT), **env}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attnlab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=tmp_path,
        )

    def tell(self, **command) -> None:
        self.tell_raw(json.dumps(command))

    def tell_raw(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, event: str) -> list[dict]:
        """Everything up to and including the next `event`."""
        heard = []
        while not heard or heard[-1]["event"] != event:
            line = self.process.stdout.readline()
            assert line, f"the worker ended before {event}: {heard}"
            heard.append(json.loads(line))
        return heard

    def measure(self, paths, *, id=1, problem=PROBLEM, budget_s=0.02, min_samples=3) -> list[dict]:
        self.tell(
            do="measure",
            id=id,
            problem=problem,
            paths=paths,
            phase="quick",
            budget_s=budget_s,
            min_samples=min_samples,
            target=0.01,
        )
        return [message for message in self.hear("done") if message["event"] != "path"]


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """One worker for all tests that leave it in order. It has said hello, and tried what need not be compiled."""
    conversation = Conversation(tmp_path_factory.mktemp("worker"))
    conversation.hello = conversation.hear("hello")[0]
    conversation.statuses = {}
    compile_first = {"compiled", "flex"}
    while len(conversation.statuses) < len(conversation.hello["paths"]) - len(compile_first):
        status = conversation.hear("path")[-1]["status"]
        conversation.statuses[status["name"]] = status
    yield conversation
    conversation.process.kill()
    conversation.process.wait()


@pytest.fixture
def talk(tmp_path):
    begun = []

    def begin(**env):
        begun.append(Conversation(tmp_path, **env))
        return begun[-1]

    yield begin
    for conversation in begun:
        conversation.process.kill()
        conversation.process.wait()


def test_hello_says_what_there_is(worker):
    assert worker.hello["device"]["kind"] == "cpu" and worker.hello["device"]["total_bytes"] > 0
    assert {status["name"] for status in worker.hello["paths"]} >= {"standard", "flash"}


def test_a_step_is_one_problem_through_each_path(worker):
    heard = worker.measure(["standard", "flash", "flash-attn-2"])
    assert [m["path"] for m in heard if m["event"] == "started"] == ["standard", "flash", "flash-attn-2"]
    points = [m["measurement"] for m in heard if m["event"] == "measurement"]
    assert [p["status"] for p in points] == ["ok", "ok", "unsupported"]
    assert len(points[0]["samples_ms"]) == points[0]["samples"] + len(points[0]["unused"])
    assert heard[-1]["cancelled"] is False and heard[-1]["free_bytes"] > 0


def test_paths_that_misbehave_on_purpose_are_not_there_unless_the_environment_asks(worker):
    heard = worker.measure(["faulty-exit", "standard"])
    assert [m["measurement"]["path"] for m in heard if m["event"] == "measurement"] == ["standard"]
    assert not [status for status in worker.hello["paths"] if status["name"].startswith("faulty")]


def test_idle_it_has_tried_every_path(worker):
    assert worker.statuses["standard"]["state"] == worker.statuses["flash"]["state"] == "ready"
    missing = worker.statuses["flash-attn-4"]
    assert missing["state"] == "missing" and "NVIDIA GPU" in missing["reason"]


def test_what_is_not_a_command_does_no_harm(worker):
    for line in (
        "",
        "{",
        "[]",
        "null",
        '{"do": "dance"}',
        '{"do": "measure"}',
        '{"do": "measure", "problem": {"batch": 0}}',
        '{"do": "measure", "problem": [1], "paths": 7}',
        json.dumps({"do": "measure", "problem": PROBLEM, "paths": 7, "phase": 3}),
        json.dumps(
            {
                "do": "measure",
                "problem": PROBLEM,
                "paths": ["standard"],
                "phase": "quick",
                "budget_s": "long",
                "min_samples": None,
                "target": [],
            }
        ),
        json.dumps({"do": "examine", "problem": PROBLEM, "paths": ["standard"], "task": "dance"}),
        json.dumps({"do": "ceilings", "matmul_tflops": 7, "copy_tbs": "fast"}),
        "[" * 5000,
    ):
        worker.tell_raw(line)
    heard = worker.measure(["standard"], id=9)
    while heard[-1]["id"] != 9:
        heard += worker.hear("done")
    (point,) = [m["measurement"] for m in heard if m["event"] == "measurement" and m["id"] == 9]
    assert point["status"] == "ok"


def test_what_a_library_prints_cannot_reach_the_stream(talk, tmp_path):
    code = (
        "import os, sys; sys.argv = ['w']; import attnlab.worker as w; import attnlab.measure.facts as f; "
        "f.cpu_name = lambda: (print('python noise'), os.system('echo C noise'), 'noisy')[2]; w.main()"
    )
    environment = {**os.environ, "ATTNLAB_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, env=environment, timeout=60
    )
    assert all(json.loads(line) for line in process.stdout.splitlines())
    assert "noise" not in process.stdout and "C noise" in process.stderr


def test_a_cancel_ends_the_step_and_the_next_one_runs(worker):
    worker.tell(
        do="measure",
        id=1,
        problem=PROBLEM,
        paths=["standard", "flash"],
        phase="quick",
        budget_s=60,
        min_samples=300,
        target=0.0,
    )
    worker.hear("started")
    worker.tell(do="cancel")
    assert worker.hear("done")[-1]["cancelled"] is True
    assert worker.measure(["standard"], id=2)[-1]["cancelled"] is False


def test_a_late_cancel_does_not_hit_the_next_step(worker):
    worker.measure(["standard"], id=1)
    worker.tell(do="cancel")
    assert worker.measure(["standard"], id=2)[-1]["cancelled"] is False


def test_it_ends_with_its_stdin_even_inside_a_call_that_hangs(talk):
    worker = talk(ATTNLAB_FAULTY="1")
    worker.hear("hello")
    worker.tell(
        do="measure", id=1, problem=PROBLEM, paths=["faulty-hang"], phase="quick", budget_s=1, min_samples=3, target=0.1
    )
    worker.hear("started")
    worker.process.stdin.close()
    assert worker.process.wait(timeout=10) == 0


HOLDER = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-m", "attnlab.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdout.readline()
print(worker.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_program_even_when_no_thread_of_it_runs(tmp_path):
    """As one that hangs in native code with Python's lock taken: it cannot see that its input has ended."""
    environment = {**os.environ, "ATTNLAB_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    pid = int(holder.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    holder.kill()
    holder.communicate()
    wait_gone(pid)


def test_a_late_fault_is_blamed_on_the_path_that_queued_it(monkeypatch):
    """A kernel that fails after its call has returned: without waiting for it, the next path's call would get the error."""
    from attnlab.measure.trial import DeviceLost

    worker = Worker(out := io.StringIO(), "cpu")
    errors = iter(("", "CUDA error: an illegal memory access was encountered"))
    monkeypatch.setattr("attnlab.measure.trial.device_fault", lambda device: next(errors))
    with pytest.raises(DeviceLost, match="flash: CUDA error: an illegal memory access"):
        worker.serve({"do": "measure", "id": 4, "problem": PROBLEM, "paths": ["standard", "flash", "sdpa-math"],
                      "phase": "quick", "budget_s": 0.02, "min_samples": 3, "target": 0.1})  # fmt: skip
    points = [m["measurement"] for m in map(json.loads, out.getvalue().splitlines()) if m["event"] == "measurement"]
    assert [(p["path"], p["status"]) for p in points] == [("standard", "ok"), ("flash", "fault")]
    assert "illegal memory access" in points[1]["reason"] and points[1]["device_ms"] is None and points[1]["flops"]


def test_memory_that_runs_out_between_points_does_not_end_the_worker(monkeypatch, capsys):
    worker = Worker(out := io.StringIO(), "cpu")

    def no_room(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB\nand a second line")

    monkeypatch.setattr(worker, "take_ceilings", no_room)
    monkeypatch.setattr(worker, "compare", no_room)
    worker.serve({"do": "ceilings"})
    worker.serve({"do": "compare", "id": 5, "problem": PROBLEM, "flash": "flash", "steps": 2})
    heard = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [m["event"] for m in heard] == ["done", "round", "done"]
    assert heard[1]["reason"] == "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert "ceilings failed: CUDA out of memory" in capsys.readouterr().err


def test_a_second_worker_waits_and_says_who_measures(talk):
    first, second = talk(ATTNLAB_FAULTY="1"), talk()
    first.hear("hello")
    second.hear("hello")
    first.tell(
        do="measure", id=1, problem=PROBLEM, paths=["faulty-hang"], phase="quick", budget_s=1, min_samples=3, target=0.1
    )
    first.hear("started")
    time.sleep(0.2)
    second.tell(
        do="measure", id=5, problem=PROBLEM, paths=["standard"], phase="quick", budget_s=0.02, min_samples=3, target=0.1
    )
    assert str(first.process.pid) in second.hear("waiting")[-1]["text"]
    first.process.send_signal(signal.SIGKILL)
    assert any(m["event"] == "measurement" and m["measurement"]["status"] == "ok" for m in second.hear("done"))


def test_compare_gives_a_round_each(worker):
    worker.tell(do="compare", id=3, problem=PROBLEM, flash="flash", steps=2)
    rounds = [m for m in worker.hear("done") if m["event"] == "round"]
    assert [r["step"] for r in rounds] == [0, 1] and all(r["standard_ms"] > 0 and r["flash_ms"] > 0 for r in rounds)


def test_compare_says_why_a_path_cannot(worker):
    worker.tell(do="compare", id=3, problem=PROBLEM, flash="flash-attn-4", steps=2)
    (refusal,) = [m for m in worker.hear("done") if m["event"] == "round"]
    assert "NVIDIA GPU" in refusal["reason"]


def test_without_torch_it_says_what_to_install(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    process = subprocess.run(
        [sys.executable, "-m", "attnlab.worker"], input="", capture_output=True, text=True, env=environment, timeout=60
    )
    (fatal,) = [json.loads(line) for line in process.stdout.splitlines()]
    assert (fatal["event"], fatal["reason"]) == ("fatal", "PyTorch cannot be loaded: no torch here")
    assert "Traceback" not in process.stderr


def test_an_unknown_device_is_refused_in_words(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ATTNLAB_DEVICE": "gpu9"}
    process = subprocess.run(
        [sys.executable, "-m", "attnlab.worker"], input="", capture_output=True, text=True, env=environment, timeout=60
    )
    (fatal,) = [json.loads(line) for line in process.stdout.splitlines()]
    assert fatal["event"] == "fatal" and "device cannot be used" in fatal["reason"]


@pytest.mark.parametrize(("name", "cards", "chosen"), [("", 0, "cpu"), ("", 2, "cuda:0"), ("cuda", 1, "cuda:0"),
                                                       ("cuda:1", 2, "cuda:1"), ("cpu", 2, "cpu")])  # fmt: skip
def test_f22_a_device_that_is_there_can_be_chosen(name, cards, chosen):
    assert legal_device(name, cards) == chosen


@pytest.mark.parametrize(
    ("name", "cards", "legal"), [("cuda:1", 1, "cuda:0, cpu"), ("cuda", 0, "cpu"), ("gpu", 0, "cpu")]
)
def test_f22_one_that_is_not_there_is_refused_with_those_that_are(name, cards, legal):
    with pytest.raises(RuntimeError, match=f"^device is .*; legal here: {legal}$"):
        legal_device(name, cards)


def test_a_device_that_is_not_there_ends_the_worker_with_one_line():
    ran = subprocess.run(
        [sys.executable, "-m", "attnlab.worker", "--device", "cuda:77"],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    (line,) = ran.stdout.splitlines()
    assert json.loads(line)["event"] == "fatal" and "legal here: " in line and "Traceback" not in ran.stderr
