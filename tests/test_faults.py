"""A real lab with a real worker whose paths misbehave on purpose: each fault is a point, and the sweep goes on."""

from __future__ import annotations

import sys

import pytest

from attnlab import cost
from attnlab.lab import Lab
from attnlab.paths import FAULTS, PATHS, PathInfo
from attnlab.problem import AttentionProblem
from attnlab.store import Store
from attnlab.sweep import Sweep

# A run of 512 and 1,024 tokens: the faulty paths behave up to 256, so that their trial launch succeeds.
PROBLEM = AttentionProblem(batch=1, seq_q=512, heads=4, head_dim=64, dtype="bfloat16")


@pytest.fixture
def lab_on(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_FAULTY", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
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


def test_a_worker_that_dies_is_a_fault_of_the_path_that_killed_it(lab_on):
    done = run(lab_on("cpu"), "flash", "faulty-exit", "standard", seqs=(512,))
    assert done.state == "done", done.reason
    assert statuses(done, "flash") == statuses(done, "standard") == ["ok"]
    (fault,) = [m for m in done.measurements if m.path == "faulty-exit"]
    assert fault.status == "fault" and "exit code 7" in fault.reason and "restarted" in fault.reason


def test_a_call_that_hangs_is_a_timeout_and_the_rest_is_measured(lab_on):
    done = run(lab_on("cpu", time_limit_s=4.0), "faulty-hang", "standard", seqs=(512,))
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
