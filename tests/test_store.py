"""The store: what is written stays, whatever happens to the process or the file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from attnlab.device import Device, PathStatus
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.store import Store, home
from attnlab.sweep import Sweep

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = AttentionProblem(batch=1, seq_q=128, heads=4, head_dim=64, dtype="float32")
SWEEP = Sweep(problem=PROBLEM, seqs=(128, 256))
PACKAGES = (("flash-attn", "2.8.3"),)
DEVICE = Device(kind="cpu", name="a CPU", uuid="u", total_bytes=1 << 34, free_bytes=1 << 33, packages=PACKAGES)


def point(path: str, seq: int, ms: float | None = 1.5, status: str = "ok", **more) -> Measurement:
    values = dict(device_ms=ms, device_ms_low=ms, device_ms_high=ms, samples=10 if ms else 0) | more
    return Measurement(problem=PROBLEM.at_seq(seq), path=path, status=status, **values)


def finished(store: Store, run_id: str, sweep: Sweep = SWEEP, *, device: Device = DEVICE, created: str = "", **points):
    """A run that measured all of its sweep; points like standard_256=Measurement replace what is in it."""
    store.create_run(Run(id=run_id, sweep=sweep, state="queued", created=created or f"2026-11-30T00:00:0{run_id[-1]}"))
    store.start(run_id, device)
    for seq in sweep.seqs:
        for path in sweep.paths:
            m = points.get(f"{path}_{seq}", point(path, seq))
            store.event(run_id, "measurement", m.to_json())
    store.finish(run_id, "done", "", 1.25, "refined")


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    assert store.problem == ""
    yield store
    store.close()


def test_home_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ATTNLAB_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert home() == tmp_path / ".local/share/attnlab"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data/attnlab"
    monkeypatch.setenv("ATTNLAB_HOME", "~/mine")
    assert home() == tmp_path / "mine"


@pytest.mark.parametrize("nowhere", ["~nobody-of-that-name/attnlab", "x" * 5000])
def test_a_home_that_cannot_be_costs_the_history_and_is_said_in_words(monkeypatch, tmp_path, nowhere):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_HOME", nowhere)
    store = Store()
    assert "cannot be used" in store.problem and "\n" not in store.problem and not list(tmp_path.iterdir())
    finished(store, "r1")
    assert store.load("r1").state == "done"


def test_a_run_comes_back_as_it_was(store, tmp_path):
    m = point("standard", 128, samples=2, samples_ms=(1.0, 2.0), notes=("a", "b"), peak_bytes=2**40)
    finished(store, "r1", standard_128=m)
    run = Store(tmp_path).load("r1")
    assert (run.state, run.seconds, run.phase, run.device, run.sweep) == ("done", 1.25, "refined", DEVICE, SWEEP)
    assert run.get("standard", 128) == m
    order = [(m.path, m.seq) for m in run.measurements]
    assert order == [("standard", 128), ("standard", 256), ("flash", 128), ("flash", 256)]
    assert store.load("nothing") is None


def test_the_newest_measurement_of_a_point_is_shown_and_the_older_kept(store):
    finished(store, "r1")
    store.event("r1", "measurement", point("flash", 256, 9.0, phase="refined").to_json())
    assert store.load("r1").get("flash", 256).device_ms == 9.0
    assert [kind for _, kind, _ in store.events("r1")].count("measurement") == 5


def test_recent_runs_are_newest_first_and_light(store):
    for n in (1, 3, 2):
        finished(store, f"r{n}")
    assert [run.id for run in store.recent(2)] == ["r3", "r2"]
    assert store.recent(1)[0].measurements == ()


def test_nan_is_not_stored(store):
    finished(store, "r1")
    with pytest.raises(ValueError):
        store.event("r1", "note", {"ms": float("nan")})


# Answers


def test_a_finished_run_answers_an_equal_question_and_parts_of_it(store):
    finished(store, "r1")
    assert store.find_answer(SWEEP, DEVICE.key).measurements == store.load("r1").measurements
    part = replace(SWEEP, seqs=(256,), paths=("flash",))
    answer = store.find_answer(part, DEVICE.key)
    assert answer.id == "r1" and answer.sweep == part
    assert [(m.path, m.seq) for m in answer.measurements] == [("flash", 256)]


def test_the_newest_answer_wins(store):
    finished(store, "r1")
    finished(store, "r2")
    assert store.find_answer(SWEEP, DEVICE.key).id == "r2"


@pytest.mark.parametrize(
    "asked",
    [
        replace(SWEEP, seqs=(128, 512)),
        replace(SWEEP, paths=("standard", "sdpa-math")),
        replace(SWEEP, problem=replace(PROBLEM, causal=True)),
        replace(SWEEP, problem=replace(PROBLEM, batch=2)),
        replace(SWEEP, problem=replace(PROBLEM, dtype="bfloat16")),
        replace(SWEEP, problem=replace(PROBLEM, direction="forward+backward")),
    ],
)
def test_another_question_has_no_answer(store, asked):
    finished(store, "r1")
    assert store.find_answer(asked, DEVICE.key) is None


def test_the_length_in_the_problem_itself_is_not_part_of_the_question(store):
    finished(store, "r1")
    assert store.find_answer(replace(SWEEP, problem=PROBLEM.at_seq(4096)), DEVICE.key) is not None


def test_a_padded_batch_answers_itself_alone(store):
    problem = replace(PROBLEM, batch=2, seq_q=256, seq_kv=256, lengths=(256, 100))
    sweep = replace(SWEEP, problem=problem)
    points = {
        f"{path}_{seq}": replace(point(path, seq), problem=sweep.at(seq)) for path in SWEEP.paths for seq in SWEEP.seqs
    }
    finished(store, "r1", sweep, **points)
    assert store.find_answer(sweep, DEVICE.key).id == "r1"
    part = store.find_answer(replace(sweep, seqs=(128,)), DEVICE.key)
    assert [m.problem.lengths for m in part.measurements] == [(128, 50)] * 2
    for other in (
        replace(problem, lengths=(256, 101)),
        replace(problem, lengths=None),
        replace(problem, seq_q=512, seq_kv=512),  # the same numbers, of longer sequences
    ):
        assert store.find_answer(replace(sweep, problem=other), DEVICE.key) is None
    assert store.load("r1").get("flash", 128).problem == sweep.at(128)


def test_another_device_or_version_has_no_answer(store):
    finished(store, "r1")
    assert store.find_answer(SWEEP, replace(DEVICE, torch="2.99").key) is None


@pytest.mark.parametrize("state", ["running", "cancelled", "failed"])
def test_a_run_that_did_not_finish_is_no_answer(store, state):
    finished(store, "r1")
    store.finish("r1", state, "", 1.0)
    assert store.find_answer(SWEEP, DEVICE.key) is None


def test_a_point_that_was_not_tried_answers_only_who_would_not_try_it_either(store):
    finished(store, "r1", standard_256=point("standard", 256, None, "skipped", predicted_ms=1e6))
    assert store.find_answer(SWEEP, DEVICE.key) is not None
    assert store.find_answer(replace(SWEEP, budget_s=SWEEP.budget_s * 2), DEVICE.key) is None
    assert store.find_answer(replace(SWEEP, budget_s=SWEEP.budget_s * 2, seqs=(128,)), DEVICE.key) is not None


def test_a_point_that_nobody_began_answers_nobody(store):
    finished(store, "r1", standard_256=point("standard", 256, None, "unreached", reason="why"))
    assert store.find_answer(SWEEP, DEVICE.key) is None


def test_a_wide_interval_does_not_answer_a_larger_budget(store):
    finished(store, "r1", standard_128=point("standard", 128, 1.0, device_ms_low=0.9, device_ms_high=1.1))
    assert store.find_answer(SWEEP, DEVICE.key) is not None
    assert store.find_answer(replace(SWEEP, budget_s=SWEEP.budget_s * 2), DEVICE.key) is None


def test_a_time_of_one_sample_does_not_answer_a_larger_budget(store):
    finished(store, "r1", standard_128=point("standard", 128, 1.0, samples=1))
    assert store.find_answer(SWEEP, DEVICE.key) is not None
    assert store.find_answer(replace(SWEEP, budget_s=SWEEP.budget_s * 2), DEVICE.key) is None


def test_an_out_of_memory_that_was_foreseen_answers_only_who_would_not_try_it_either(store):
    finished(store, "r1", standard_256=point("standard", 256, None, "oom", predicted_bytes=2**50))
    assert store.find_answer(SWEEP, DEVICE.key).id == "r1"
    assert store.find_answer(replace(SWEEP, try_oom=True), DEVICE.key) is None
    finished(store, "r2", standard_256=point("standard", 256, None, "oom"))
    assert store.find_answer(replace(SWEEP, try_oom=True), DEVICE.key).id == "r2"  # it really ran out


@pytest.mark.parametrize("status", ["fault", "timeout"])
def test_an_accident_is_no_answer(store, status):
    finished(store, "r1", standard_256=point("standard", 256, None, status))
    assert store.find_answer(SWEEP, DEVICE.key) is None


def test_a_quick_run_is_no_answer_to_who_wants_it_refined(store):
    finished(store, "r1", replace(SWEEP, refine=False))
    assert store.find_answer(SWEEP, DEVICE.key) is None
    assert store.find_answer(replace(SWEEP, refine=False), DEVICE.key) is not None


def test_a_device_is_remembered_for_its_worker_command(store, tmp_path):
    paths = (PathStatus(name="flash", state="ready", provider="p"),)
    store.remember_device(["python", "-m", "w"], DEVICE, paths)
    assert Store(tmp_path).last_device(["python", "-m", "w"]) == (DEVICE, paths)
    assert store.last_device(["ssh", "box", "python", "-m", "w"]) is None


# Accidents

KILLED = """
import os, sys
sys.path.insert(0, {root!r}); sys.path.insert(0, {tests!r})
from test_store import *
store = Store({home!r})
store.create_run(Run(id="r1", sweep=SWEEP, state="queued", created="2026-11-30"))
store.start("r1", DEVICE)
store.event("r1", "measurement", point("flash", 128).to_json())
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_process(tmp_path):
    """A program in the middle of a run."""
    code = KILLED.format(root=str(ROOT), tests=str(ROOT / "tests"), home=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.communicate()


def test_what_a_killed_program_measured_is_there_and_its_run_is_closed(other_process, tmp_path):
    assert Store(tmp_path).load("r1").state == "running"  # its owner lives: hands off
    os.kill(other_process.pid, signal.SIGKILL)
    other_process.wait()
    run = Store(tmp_path).load("r1")
    assert run.state == "cancelled" and str(other_process.pid) in run.reason
    assert run.get("flash", 128).device_ms == 1.5


def test_a_run_whose_process_number_was_given_to_another_is_closed(store, tmp_path):
    store.create_run(Run(id="r1", sweep=SWEEP, state="running", created="2026-11-30"))
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        db.execute("UPDATE runs SET owner = json_set(owner, '$.started', 'long ago')")
    assert Store(tmp_path).load("r1").state == "cancelled"


def test_a_run_of_another_host_is_closed_when_nothing_has_come_for_long(store, tmp_path):
    store.create_run(Run(id="old", sweep=SWEEP, state="running", created="2020-01-01T00:00:00+00:00"))
    store.create_run(Run(id="new", sweep=SWEEP, state="running", created="2020-01-01T00:00:00+00:00"))
    store.event("new", "started", {})
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        db.execute("UPDATE runs SET owner = json_set(owner, '$.host', 'elsewhere')")
    again = Store(tmp_path)
    assert (again.load("old").state, again.load("new").state) == ("cancelled", "running")


def test_several_processes_and_threads_write_at_once(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r}); sys.path.insert(0, {str(ROOT / "tests")!r})
from test_store import *
store = Store({str(tmp_path)!r})
run_id = sys.argv[1]
store.create_run(Run(id=run_id, sweep=SWEEP, state="running", created="2026-11-30"))
def write():
    for i in range(25):
        store.event(run_id, "note", {{"i": i}})
threads = [threading.Thread(target=write) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert store.problem == "", store.problem
"""
    # All of them create the file and its schema at the same moment.
    processes = [subprocess.Popen([sys.executable, "-c", code, f"r{i}"], stderr=subprocess.PIPE) for i in range(4)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
    store = Store(tmp_path)
    assert [len(store.events(f"r{i}")) for i in range(4)] == [100] * 4


def test_a_damaged_file_is_set_aside_and_never_overwritten(tmp_path):
    damaged = b"this is not a database, but somebody's only copy of something" * 100
    (tmp_path / "attnlab.db").write_bytes(damaged)
    store = Store(tmp_path)
    assert "damaged" in store.problem and "\n" not in store.problem
    finished(store, "r1")
    kept = [path for path in tmp_path.iterdir() if "damaged" in path.name]
    assert [path.read_bytes() for path in kept] == [damaged]
    assert Store(tmp_path).load("r1").state == "done"


def test_a_file_cut_short_is_set_aside(tmp_path):
    store = Store(tmp_path)
    for n in range(9):
        finished(store, f"r{n}")
    store.close()
    path = tmp_path / "attnlab.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096])
    store = Store(tmp_path)
    assert store.problem
    finished(store, "r1")
    assert store.load("r1").state == "done"
    assert whole[:4096] in [kept.read_bytes() for kept in tmp_path.iterdir()]


def test_a_file_of_a_newer_version_is_left_alone(store, tmp_path):
    finished(store, "r1")
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        db.execute("PRAGMA user_version = 99")
    later = Store(tmp_path)
    assert "newer AttnLab" in later.problem and later.load("r1") is None
    finished(later, "r2")
    assert later.load("r2").state == "done" and store.load("r2") is None


def test_a_directory_that_cannot_be_used_leaves_a_store_in_memory(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "below")
    assert "memory" in store.problem and "\n" not in store.problem
    finished(store, "r1")
    assert store.load("r1").state == "done"
    threads = [threading.Thread(target=store.event, args=("r1", "note", {"i": i})) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.events("r1")) == 4 + 8


def test_a_file_that_stops_taking_writes_does_not_stop_the_run(store):
    finished(store, "r1")
    store.create_run(Run(id="r2", sweep=SWEEP, state="running", created="2026-11-30T00:00:02"))
    store._keeper.db.execute("PRAGMA query_only = ON")  # as a disk that has become read-only
    store.event("r2", "measurement", point("flash", 128).to_json())
    assert "cannot be written any more" in store.problem
    assert store.load("r2").get("flash", 128).ok and store.load("r1").state == "done"


def test_bytes_that_are_no_text_in_a_reason_are_kept_as_a_sign(store):
    finished(store, "r1")
    store.finish("r1", "failed", "no such program: \udcff", 1.0)
    assert store.load("r1").reason == "no such program: ?"
