"""Every accident, one after the other: each is a point with its status, the first line of the error and what to do, blamed on
the path that caused it; the sweep goes on in a fresh worker, and what was measured before stands.

First a worker that computes nothing and has all accidents (fake_worker.py); then real ones, whose paths misbehave on purpose
(attnlab.paths.faulty), on the CPU and on a GPU.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field, replace

import pytest
from test_lab import DEADLINE_S, QUICK, all_ok_but, ready, result, until, wait_gone, worker_pid
from test_lab import statuses as by_point

from attnlab import cost, summary
from attnlab.lab import Lab
from attnlab.paths import FAULTS, PATHS, PathInfo
from attnlab.problem import AttentionProblem
from attnlab.store import Store
from attnlab.supervisor import RESTART_LIMIT_S
from attnlab.sweep import Sweep

# A run of 512 and 1,024 tokens: the faulty paths behave up to 256, so that their trial launch succeeds.
PROBLEM = AttentionProblem(batch=1, seq_q=512, heads=4, head_dim=64, dtype="bfloat16")


@dataclass(frozen=True)
class Accident:
    """What happens to flash at 256, and what comes of it: `rest` are the other points that are not ok."""

    mode: dict
    status: str
    error: str
    remedy: str
    rest: dict = field(default_factory=dict)
    fresh: bool = True  # the worker is another one afterwards


AT = ["flash", 256]
LEAVE_OUT = "Measure again; if it comes back, leave the path out"
ACCIDENTS = {
    "memory": Accident({"oom_at": AT}, "oom", "fake oom", "Lower batch, heads or sequence, or take a flash path",
                       rest={("flash", 512): "oom"}, fresh=False),
    "assert": Accident({"fault_at": AT}, "fault", "CUDA fault: device-side assert triggered",
                       "The other points are not touched by it; measure again"),
    "hang": Accident({"hang_at": AT}, "timeout", "nothing came for 1 s, the time limit; the worker was restarted",
                     "Take a shorter sequence", rest={("flash", 512): "skipped"}),
    "killed": Accident({"die_at": AT}, "fault", "the worker died (signal 9, killed); restarted",
                       "A system that runs out of host memory kills like that: lower batch or sequence"),
    "exit": Accident({"exit_at": AT}, "fault", "the worker died (exit code 7: RuntimeError: the last words); restarted",
                     LEAVE_OUT),
    "half a line": Accident({"half_line_at": AT}, "fault", "the worker died (exit code 5); restarted", LEAVE_OUT),
    "garbage without end": Accident({"flood_at": AT}, "timeout", "nothing came for 1 s", "Take a shorter sequence",
                                    rest={("flash", 512): "skipped"}),
    "no answer": Accident({"forget_at": AT}, "fault", "the worker ended the step without a measurement", LEAVE_OUT,
                          fresh=False),
}  # fmt: skip


@pytest.mark.parametrize("paths", [("standard", "flash"), ("flash", "standard")], ids=["last", "first"])
@pytest.mark.parametrize("name", ACCIDENTS)
def test_an_accident_is_a_point_of_its_path_and_of_nothing_else(make_lab, name, paths):
    accident, sweep, stood = ACCIDENTS[name], replace(QUICK, paths=paths), {}
    ready(lab := make_lab(**accident.mode, limits={"time_limit_s": 1.0}))
    pid, run_id = worker_pid(lab), lab.submit(sweep)
    while (snapshot := lab.snapshot(run_id)).run.active:
        points = {(m.path, m.seq): m for m in snapshot.run.measurements}
        assert stood.items() <= points.items(), "what was measured before stands"
        stood = points
        lab.changed(snapshot.version, DEADLINE_S)
    run = snapshot.run
    assert run.state == "done" and by_point(run) == all_ok_but(sweep, *AT, accident.status) | accident.rest
    m = run.get(*AT)
    assert m.reason.startswith(f"{accident.error}. {accident.remedy}" if accident.status == "fault" else accident.error)
    assert accident.remedy in m.reason and "\n" not in m.reason and m.device_ms is None and m.flops
    assert lab.store.load(run_id).measurements == run.measurements
    until(lab, lambda s: s.worker.state == "ready", "the worker")
    assert (worker_pid(lab) != pid) == accident.fresh


def test_garbage_on_stdout_is_noted_and_costs_nothing(make_lab):
    lab = make_lab(garbage=True)
    assert by_point(result(lab)) == all_ok_but(QUICK, *AT, "ok")
    assert any("a library prints" in note for note in lab.notes)


def test_a_sweep_of_nothing_but_accidents_has_a_point_for_each(make_lab, tmp_path):
    """Three workers in a row that die are no reason to leave the rest: every death is a point less to try."""
    sweep = replace(QUICK, seqs=(128, 256, 512, 1024))
    run = result(make_lab(die_at="everywhere"), sweep)
    assert run.state == "done" and set(by_point(run).values()) == {"fault"} and len(run.measurements) == 8


@pytest.mark.parametrize("kind", ["GPU", "CPU"])
def test_a_restart_is_seen_and_its_length_is_kept(make_lab, kind):
    lab = make_lab(kind="cuda" if kind == "GPU" else "cpu", die_at=AT, start_s=0.3)
    run_id, seen = lab.submit(QUICK), set()
    while (snapshot := lab.snapshot(run_id)).run.active:
        seen.add((snapshot.worker.state, snapshot.worker.text, snapshot.run.activity))
        lab.changed(snapshot.version, DEADLINE_S)
    words = f"restarting the {kind} worker"
    assert ("restarting", words, words) in seen
    (back,) = [data for _, kind, data in lab.store.events(run_id) if kind == "worker ready"]
    assert back["after_s"] >= 0.3 and back["limit_s"] == RESTART_LIMIT_S


def test_a_worker_that_is_slow_to_start_is_waited_for_and_people_are_told(make_lab):
    """The first one and the one after an accident, neither of which is given up before its limit."""
    lab = make_lab(start_s=1.0, die_at=AT, limits={"slow_start_s": 0.2})
    run_id, seen = lab.submit(QUICK), set()
    while (snapshot := lab.snapshot(run_id)).run.active:
        seen |= {snapshot.worker.text, snapshot.run.activity}
        lab.changed(snapshot.version, DEADLINE_S)
    assert by_point(snapshot.run) == all_ok_but(QUICK, *AT, "fault")
    slow = "takes longer than 0.2 s; it is waited for up to 600 s"
    assert {f"starting the worker {slow}", f"restarting the GPU worker {slow}"} <= seen


# A worker that cannot start

CANNOT_START = {
    "torch": "PyTorch cannot be loaded: No module named 'torch'. Install what is missing: pip install",
    "driver": "the device cannot be used: No CUDA GPUs are available. See whether nvidia-smi still answers",
    "connection": "exit code 255: ssh: connect to host gpu-box port 22: Connection refused. See whether the machine that"
    " ATTNLAB_WORKER names answers",
}


@pytest.mark.parametrize("how", CANNOT_START)
def test_what_no_worker_can_come_back_for_is_points_too(make_lab, tmp_path, monkeypatch, how):
    """What was measured stands, the path in flight has its fault, and the rest is nobody's: told once, in one line."""
    lab = make_lab(lost={"how": how, "file": str(tmp_path / "lost"), "at": AT})
    run = result(lab)
    assert run.state == "failed" and run.device.name == "NVIDIA H200"
    assert by_point(run) == {
        ("standard", 128): "ok", ("standard", 256): "ok", ("standard", 512): "unreached",
        ("flash", 128): "ok", ("flash", 256): "fault", ("flash", 512): "unreached",
    }  # fmt: skip
    assert "signal 9" in run.get(*AT).reason
    said = f"the worker cannot start, tried 3 times: {CANNOT_START[how]}"
    assert run.reason.startswith(said) and "\n" not in run.reason
    assert {m.reason for m in run.measurements if m.status == "unreached"} == {run.reason, lab.snapshot().worker.text}
    assert summary.sentence(run).count("the worker cannot start") == 1
    assert "2 points were not reached (the worker cannot start" in summary.sentence(run)
    assert lab.store.load(run.id).measurements == run.measurements
    monkeypatch.setenv("FAKE_WORKER", "{}")
    assert by_point(result(lab)) == all_ok_but(QUICK, *AT, "ok")


@pytest.mark.parametrize("how", CANNOT_START)
def test_a_run_whose_first_worker_cannot_start_has_all_its_points(make_lab, tmp_path, how):
    (lost := tmp_path / "lost").touch()
    lab = make_lab(lost={"how": how, "file": str(lost)})
    runs = [lab.submit(sweep) for sweep in (QUICK, replace(QUICK, seqs=(128,)))]  # the one that waits behind it, too
    for run_id, points in zip(runs, (6, 2), strict=True):
        run = lab.wait(run_id, DEADLINE_S)
        assert run.state == "failed" and CANNOT_START[how] in run.reason and run.device is None
        assert list(by_point(run).values()) == ["unreached"] * points
        assert lab.store.load(run_id).measurements == run.measurements
        assert summary.sentence(run) == f"The run failed before anything was measured: {run.reason}."
    lost.unlink()
    assert result(lab).state == "done"


def test_a_worker_that_comes_back_at_the_second_try_costs_no_point_more(make_lab, tmp_path):
    lab = make_lab(lost={"how": "connection", "file": str(tmp_path / "lost"), "at": AT})
    run_id, seen = lab.submit(QUICK), set()
    while (snapshot := lab.snapshot(run_id)).run.active:
        seen.add(snapshot.run.activity)
        if snapshot.run.activity.endswith("try 3 of 3"):
            (tmp_path / "lost").unlink(missing_ok=True)
        lab.changed(snapshot.version, DEADLINE_S)
    assert snapshot.run.state == "done" and by_point(snapshot.run) == all_ok_but(QUICK, *AT, "fault")
    assert "restarting the GPU worker, try 3 of 3" in seen


# Real workers


@pytest.fixture
def lab_on(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_FAULTY", "1")
    for fault in FAULTS:
        monkeypatch.setitem(PATHS, f"faulty-{fault}", PathInfo(f"faulty-{fault}", "faulty", ""))
    labs = []

    def start(device: str, **options) -> Lab:
        command = [sys.executable, "-m", "attnlab.worker", "--device", device]
        labs.append(Lab(Store(tmp_path / "home"), worker_command=command, **options))
        return labs[-1]

    yield start
    for lab in labs:
        lab.close()


def run(lab: Lab, *paths: str, seqs=(512, 1024)):
    sweep = Sweep(problem=PROBLEM, seqs=seqs, paths=paths, refine=False)
    return lab.wait(lab.submit(sweep, fresh=True), timeout=180)


def statuses(done, path: str) -> list[str]:
    return [m.status for m in done.measurements if m.path == path]


def test_a_real_worker_without_torch_is_points_and_words(make_lab, tmp_path, monkeypatch):
    """A torch that cannot be imported stands before the real one."""
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file\\nand more')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import attnlab.worker as w; sys.argv[1:] = []; w.main()"
    run = result(make_lab(command=[sys.executable, "-c", code]))
    assert run.state == "failed" and set(by_point(run).values()) == {"unreached"} and len(run.measurements) == 6
    assert run.reason == (
        "the worker cannot start, tried 3 times: PyTorch cannot be loaded: libtorch.so: cannot open shared object file."
        " Install what is missing: pip install -r requirements.txt"
    )


def test_a_worker_that_dies_is_a_fault_of_the_path_that_killed_it(lab_on):
    done = run(lab_on("cpu"), "flash", "faulty-exit", "standard", seqs=(512,))
    assert done.state == "done", done.reason
    assert statuses(done, "flash") == statuses(done, "standard") == ["ok"]
    (fault,) = [m for m in done.measurements if m.path == "faulty-exit"]
    assert fault.status == "fault" and "exit code 7" in fault.reason and "restarted" in fault.reason


def test_a_call_that_hangs_is_a_timeout_and_the_rest_is_measured(lab_on):
    done = run(lab_on("cpu", time_limit_s=6.0), "faulty-hang", "standard", seqs=(512,))
    assert statuses(done, "faulty-hang") == ["timeout"] and statuses(done, "standard") == ["ok"]


@pytest.mark.gpu
def test_f20_a_device_side_assert_costs_one_point(lab_on):
    lab = lab_on("cuda:0")
    done = run(lab, "flash", "faulty-assert", "standard")
    assert done.state == "done", done.reason
    assert statuses(done, "faulty-assert") == ["fault", "fault"]
    fault = next(m for m in done.measurements if m.path == "faulty-assert")
    assert "device-side assert" in fault.reason and "restarted" in fault.reason
    assert statuses(done, "flash") == statuses(done, "standard") == ["ok", "ok"]
    again = run(lab, "flash")
    for before, after in zip((m for m in done.measurements if m.path == "flash"), again.measurements, strict=True):
        assert after.device_ms == pytest.approx(before.device_ms, rel=0.25)


@pytest.mark.gpu
def test_f20_a_new_gpu_worker_is_ready_in_time_and_people_see_what_they_wait_for(lab_on):
    lab, seen = lab_on("cuda:0"), set()
    sweep = Sweep(problem=PROBLEM, seqs=(512,), paths=("flash", "faulty-assert", "standard"), refine=False)
    run_id = lab.submit(sweep, fresh=True)
    while (snapshot := lab.snapshot(run_id)).run.active:
        seen.add((snapshot.worker.state, snapshot.worker.text, snapshot.run.activity))
        lab.changed(snapshot.version, 1.0)
    assert [m.status for m in snapshot.run.measurements] == ["ok", "fault", "ok"], snapshot.run
    words = "restarting the GPU worker"
    assert ("restarting", words, words) in seen
    (back,) = [data for _, kind, data in lab.store.events(run_id) if kind == "worker ready"]
    print(f"a new GPU worker was ready after {back['after_s']:.1f} s; the limit is {RESTART_LIMIT_S:g} s")
    assert back["after_s"] < back["limit_s"] == RESTART_LIMIT_S


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["time", "exactness"])
def test_a_fault_that_comes_after_its_call_is_blamed_on_the_path_that_caused_it(lab_on, task):
    """An illegal access on another stream that the call does not wait for: whoever synchronises next gets the error."""
    lab = lab_on("cuda:0")
    look = {} if task == "time" else {"task": task}
    how = {"paths": ("flash", "faulty-late", "standard"), "refine": False, "budget_s": 300, **look}
    sweep = Sweep(problem=PROBLEM, seqs=(512, 1024), **how)
    done = lab.wait(lab.submit(sweep, fresh=True), timeout=240)
    assert done.state == "done", done.reason
    assert statuses(done, "faulty-late") == ["fault", "fault"], done
    for m in done.measurements:
        if m.path == "faulty-late":
            assert "CUDA fault" in m.reason and "illegal memory access" in m.reason and "restarted" in m.reason
            assert m.reason.endswith(LEAVE_OUT[0].lower() + LEAVE_OUT[1:]) and "\n" not in m.reason
        else:
            assert m.ok, m


@pytest.mark.gpu
def test_a_kernel_that_never_ends_is_a_timeout_and_the_rest_is_measured(lab_on):
    done = run(lab_on("cuda:0", time_limit_s=10.0), "flash", "faulty-spin", "standard", seqs=(512,))
    assert done.state == "done", done.reason
    assert [m.status for m in done.measurements] == ["ok", "timeout", "ok"], done
    (hung,) = [m for m in done.measurements if m.path == "faulty-spin"]
    assert hung.reason.startswith(
        "nothing came for 10 s, the time limit; the worker was restarted. Take a shorter sequence"
    )


@pytest.mark.gpu
def test_a_cancel_of_a_kernel_that_never_ends_is_over_within_5_s_and_leaves_nothing(lab_on):
    lab = lab_on("cuda:0")
    sweep = Sweep(problem=PROBLEM, seqs=(512,), paths=("faulty-spin",), refine=False)
    run_id = lab.submit(sweep, fresh=True)
    until(lab, lambda s: s.run and s.run.activity == "faulty-spin at sequence 512", "the kernel")
    time.sleep(5.0)  # it has begun by then: a worker that still prepares it would answer, and stay
    pid, began = worker_pid(lab), time.monotonic()
    lab.cancel(run_id)
    wait_gone(pid)
    assert time.monotonic() - began < 5.0
    until(lab, lambda s: s.worker.state == "ready", "a fresh worker")


@pytest.mark.gpu
def test_f11_out_of_memory_for_real_is_the_same_in_whatever_order_the_paths_come(lab_on):
    lab = lab_on("cuda:0")
    problem = AttentionProblem(batch=4, seq_q=128, heads=32, head_dim=128)
    ran_out = []
    for paths in (("standard", "sdpa-flash", "sdpa-math"), ("sdpa-math", "sdpa-flash", "standard")):
        sweep = Sweep(problem=problem, seqs=(512, 65_536), paths=paths, refine=False, try_oom=True)
        done = lab.wait(lab.submit(sweep, fresh=True), timeout=180)
        assert done.state == "done", done.reason
        ran_out.append({(m.path, m.seq) for m in done.measurements if m.status == "oom" and not m.foreseen})
        assert {m.status for m in done.measurements if (m.path, m.seq) not in ran_out[-1]} == {"ok"}
    assert ran_out[0] == ran_out[1] == {("standard", 65_536), ("sdpa-math", 65_536)}
    assert not [kind for _, kind, _ in lab.store.events(done.id) if kind == "worker died"]


@pytest.mark.gpu
def test_f11_out_of_memory_for_real_leaves_the_next_points_alone(lab_on):
    lab = lab_on("cuda:0")
    problem = AttentionProblem(batch=4, seq_q=128, heads=32, head_dim=128)
    sweep = Sweep(problem=problem, seqs=(512, 65_536), paths=("standard", "sdpa-flash"), refine=False, try_oom=True)
    done = lab.wait(lab.submit(sweep, fresh=True), timeout=180)
    assert statuses(done, "standard") == ["ok", "oom"] and statuses(done, "sdpa-flash") == ["ok", "ok"]
    out_of_memory = next(m for m in done.measurements if m.status == "oom")
    assert out_of_memory.predicted_bytes is None and "GiB" in out_of_memory.reason


@pytest.mark.gpu
def test_f12_a_fresh_worker_measures_the_memory_of_one_call_from_the_first_point_on(lab_on):
    lab = lab_on("cuda:0")
    problem = AttentionProblem(batch=1, seq_q=8192, heads=16, head_dim=128)
    for paths in (("sdpa-flash", "standard"), ("standard", "flash")):
        sweep = Sweep(problem=problem, seqs=(8192,), paths=paths, refine=False)
        done = lab.wait(lab.submit(sweep, fresh=True), timeout=180)
        for m in done.measurements:
            least = cost.predicted_peak_bytes(problem, m.path)
            assert least - (1 << 20) <= m.peak_bytes <= least + (8 << 20), m
            assert m.device_used_bytes >= m.reserved_bytes >= m.peak_bytes


@pytest.mark.gpu
def test_f22_a_second_device_is_really_used(lab_on):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    every = [name for name in PATHS if not name.startswith("faulty-")]
    done = run(lab_on("cuda:1"), *every, seqs=(512,))
    assert done.device.uuid == str(torch.cuda.get_device_properties(1).uuid)
    for m in done.measurements:  # an answer that is wrong, zeros as well, is suspect
        assert m.ok or m.status == "unsupported", m
    assert statuses(done, "flash") == statuses(done, "standard") == ["ok"]
    assert sum(m.ok for m in done.measurements) >= 5


def test_faulty_paths_are_not_there_unless_asked_for():
    assert not [name for name in PATHS if name.startswith("faulty")]
