"""The lab against a worker that misbehaves in every way it can; no torch. Waits have deadlines, nothing is timed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FAKE

from attnlab.board import QueueFull
from attnlab.lab import Lab, default_worker_command
from attnlab.problem import AttentionProblem
from attnlab.store import Store
from attnlab.sweep import BUDGET_MAX_S, Sweep

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 60.0
PROBLEM = AttentionProblem(batch=4, seq_q=128, heads=32, head_dim=128)
SWEEP = Sweep(problem=PROBLEM, seqs=(128, 256, 512), budget_s=BUDGET_MAX_S)  # a busy machine must not use it up
QUICK = replace(SWEEP, refine=False)


def until(lab: Lab, true, what: str = ""):
    """The first snapshot of the lab for which true(snapshot); AssertionError after the deadline."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        snapshot = lab.snapshot()
        if true(snapshot):
            return snapshot
        lab.changed(snapshot.version, 0.5)
    raise AssertionError(f"waited in vain: {what} {lab.snapshot()}")


def ready(lab: Lab):
    return until(lab, lambda s: s.worker.state in ("ready", "failed"), "ready").worker


def result(lab: Lab, sweep: Sweep = QUICK, **how):
    """The ended run."""
    run = lab.wait(lab.submit(sweep, **how), DEADLINE_S)
    assert not run.active, run
    return run


def statuses(run) -> dict[tuple[str, int], str]:
    return {(m.path, m.seq): m.status for m in run.measurements}


def all_ok_but(sweep: Sweep, path: str, seq: int, status: str) -> dict[tuple[str, int], str]:
    return {(p, s): "ok" for p in sweep.paths for s in sweep.seqs} | {(path, seq): status}


def gone(pid: int) -> bool:
    """Ended, or a zombie that its parent has not fetched."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pid: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while not gone(pid):
        assert time.monotonic() < end, f"process {pid} is left behind"
        time.sleep(0.02)


def worker_pid(lab: Lab) -> int:
    return lab._supervisor._process._popen.pid


# A run


def test_a_sweep_is_measured_refined_and_stored(make_lab, tmp_path):
    lab = make_lab()
    run = result(lab, SWEEP)
    assert (run.state, run.phase, run.reason, run.activity) == ("done", "refined", "", "")
    assert statuses(run) == all_ok_but(SWEEP, "flash", 128, "ok")
    assert {m.phase for m in run.measurements} == {"refined"}
    assert run.device.name == "NVIDIA H200" and run.seconds > 0
    assert Store(tmp_path).load(run.id) == replace(run, activity="")
    kinds = {kind for _, kind, _ in Store(tmp_path).events(run.id)}
    assert kinds == {"started", "measurement", "done"}
    assert not lab.notes


def test_the_worker_starts_before_anything_is_asked_and_says_what_it_learns(make_lab):
    worker = ready(lab := make_lab())
    assert worker.device.kind == "cuda" and len(worker.paths) > 5
    until(lab, lambda s: s.worker.paths[0].state == "ready", "the path event")
    assert lab.snapshot().run is None and lab.snapshot().queue == ()


def test_points_are_seen_and_stored_as_they_arrive(make_lab, tmp_path):
    lab = make_lab(delay_s=0.3)
    run_id = lab.submit(QUICK)
    snapshot = until(lab, lambda s: s.run and s.run.measurements, "the first point")
    assert snapshot.run.state == "running" and len(snapshot.run.measurements) < 6
    assert "at sequence" in snapshot.run.activity
    assert Store(tmp_path).load(run_id).measurements  # another process sees it


def test_changed_wakes_and_equal_versions_are_equal_snapshots(make_lab):
    lab = make_lab(delay_s=0.05)
    before = until(
        lab,
        lambda s: s.worker.paths and s.worker.paths[0].state == "ready" and s.worker.device.copy_tbs,
        "all that it says unasked",
    )
    assert lab.changed(before.version, 0.05) == before.version
    lab.submit(QUICK)
    assert lab.changed(before.version, DEADLINE_S) > before.version
    while (snapshot := lab.snapshot()).run.active:
        again = lab.snapshot()
        assert again.version > snapshot.version or again == snapshot
        lab.changed(again.version, DEADLINE_S)


def test_waiting_for_a_point_ends_with_one_and_not_with_words(make_lab):
    lab = make_lab(delay_s=0.05)
    known = lab.snapshot(lab.submit(QUICK)).run
    seen = []
    while known.active:
        lab.wait_for_point(known, DEADLINE_S)
        now = lab.snapshot(known.id).run
        assert now.measurements != known.measurements or not now.active
        seen.append(known := now)
    assert len(seen[-1].measurements) == 6 and len(seen) > 2
    lab.wait_for_point(seen[0], DEADLINE_S)  # old news: at once
    lab.wait_for_point(known, DEADLINE_S)  # no more will come: at once


def test_jobs_run_one_after_the_other(make_lab):
    lab = make_lab(delay_s=0.02)
    sweeps = [replace(QUICK, problem=replace(PROBLEM, batch=n)) for n in (1, 2, 3)]
    ids = [lab.submit(sweep) for sweep in sweeps]
    snapshot = until(lab, lambda s: s.run.id == ids[0] and s.run.state == "running", "the first job")
    assert snapshot.queue == tuple(ids[1:])
    for run_id, sweep in zip(ids, sweeps, strict=True):
        run = lab.wait(run_id, DEADLINE_S)
        assert (run.state, {m.problem.batch for m in run.measurements}) == ("done", {sweep.problem.batch})
    assert lab.snapshot().run.id == ids[-1]


def test_an_equal_sweep_joins_the_run_that_is_on_its_way(make_lab):
    lab = make_lab(delay_s=0.05)
    first = lab.submit(QUICK)
    assert lab.submit(QUICK) == first
    assert lab.submit(QUICK, fresh=True) != first


def test_a_run_more_than_there_is_room_for_is_refused_and_joining_one_is_not(make_lab):
    lab = make_lab(delay_s=0.2)
    running = lab.submit(QUICK)
    while lab.snapshot(running).run.state == "queued":
        lab.changed(lab.snapshot().version, 1.0)
    waiting = lab.submit(QUICK, fresh=True, room=1)
    with pytest.raises(QueueFull, match="1 run waits already"):
        lab.submit(QUICK, fresh=True, room=1)
    assert lab.submit(QUICK, room=1) == running and lab.snapshot().queue == (waiting,)


def test_predicted_points_are_stored_like_measured_ones(make_lab, tmp_path):
    sweep = replace(QUICK, seqs=(128, 65_536), budget_s=600)
    lab = make_lab()
    run = result(lab, sweep)
    m = Store(tmp_path).load(run.id).get("standard", 65_536)
    assert m.status == "oom" and m.predicted_bytes and "not tried" in m.reason
    assert m == run.get("standard", 65_536)


def test_free_memory_is_what_the_last_step_left(make_lab):
    """A verdict must not depend on what was free when the worker started."""
    sweep = replace(QUICK, seqs=(128, 4096))
    assert result(make_lab(free_bytes=1 << 30), sweep).get("standard", 4096).status == "oom"
    assert result(make_lab(free_bytes=1 << 30, free_after=100 << 30), sweep, fresh=True).get("standard", 4096).ok


def test_a_real_out_of_memory_does_not_stop_the_sweep(make_lab):
    """F11: the other path at that length, and the shorter ones later, are measured all the same."""
    run = result(make_lab(oom_at=["standard", 256]), replace(SWEEP, seqs=(128, 256)))
    assert statuses(run) == all_ok_but(replace(SWEEP, seqs=(128, 256)), "standard", 256, "oom")
    assert run.get("standard", 256).predicted_bytes is None


def test_an_unsupported_path_is_a_point_and_nothing_more(make_lab):
    run = result(make_lab(unsupported_at=["flash", 256]))
    assert statuses(run) == all_ok_but(QUICK, "flash", 256, "unsupported")


# What the device reaches


def test_ceilings_are_measured_once_and_stored(make_lab, tmp_path):
    run = result(make_lab())
    assert dict(run.device.matmul_tflops)["bfloat16"] == 700.0 and run.device.copy_tbs == 4.2
    assert Store(tmp_path).load(run.id).device == run.device
    again = make_lab(ceilings_tbs=9.9)  # this worker would measure another figure, and is told the one that is known
    snapshot = until(again, lambda s: s.worker.state == "ready")
    assert snapshot.worker.device.copy_tbs == 4.2
    assert result(again).device.copy_tbs == 4.2


def test_other_versions_have_ceilings_of_their_own(make_lab):
    result(make_lab())
    other = make_lab(uuid="another card", ceilings_tbs=1.5)
    assert until(other, lambda s: s.worker.device.copy_tbs == 1.5 if s.worker.device else False)


# Judgement


def test_an_impossible_time_is_suspect_before_it_is_seen_or_stored(make_lab, tmp_path):
    lab = make_lab(suspect_fast_at=["flash", 256])
    run = result(lab, SWEEP)
    m = run.get("flash", 256)
    assert (m.status, m.device_ms) == ("suspect", 1e-6) and "peak" in m.reason
    assert statuses(run) == all_ok_but(SWEEP, "flash", 256, "suspect")
    stored = [data for _, kind, data in Store(tmp_path).events(run.id) if kind == "measurement"]
    assert all(data["status"] == "suspect" for data in stored if (data["path"], data["seq_kv"]) == ("flash", 256))


def test_measurements_nobody_asked_for_are_dropped_with_a_note(make_lab):
    lab = make_lab(stray=True)
    run = result(lab)
    assert statuses(run) == all_ok_but(QUICK, "flash", 128, "ok")
    assert {m.problem for m in run.measurements} == {PROBLEM.at_seq(seq) for seq in QUICK.seqs}
    assert len([note for note in lab.notes if "not asked for" in note]) == 3 * 6


# Faults


def test_f20_a_fault_that_ends_the_worker_is_reported_once_and_the_sweep_goes_on(make_lab, tmp_path):
    run = result(make_lab(fault_at=["standard", 256]))
    assert run.state == "done" and statuses(run) == all_ok_but(QUICK, "standard", 256, "fault")
    assert "device-side assert" in run.get("standard", 256).reason
    points = [data for _, kind, data in Store(tmp_path).events(run.id) if kind == "measurement"]
    assert len(points) == 6


def test_a_death_between_two_paths_is_nobodys_fault(make_lab):
    run = result(make_lab(die_after=["standard", 256]))
    assert run.state == "done" and statuses(run) == all_ok_but(QUICK, "flash", 128, "ok")


def test_a_number_of_the_quick_pass_is_not_lost_when_refinement_faults(make_lab, tmp_path):
    lab = make_lab(die_refined=["flash", 256])
    run = result(lab, SWEEP)
    m = run.get("flash", 256)
    assert m.status == "fault" and m.phase == "refined" and "the quick pass had measured" in m.reason
    stored = [data["status"] for _, kind, data in Store(tmp_path).events(run.id) if kind == "measurement"]
    assert len(stored) == 12 and stored.count("fault") == 1


def test_a_worker_killed_from_outside_costs_one_point(make_lab):
    lab = make_lab(delay_s=0.1)
    run_id = lab.submit(QUICK)
    until(lab, lambda s: s.run and len(s.run.measurements) == 2, "two points")
    os.kill(worker_pid(lab), signal.SIGKILL)
    run = lab.wait(run_id, DEADLINE_S)
    assert run.state == "done" and len(run.measurements) == 6
    assert [m.status for m in run.measurements].count("fault") <= 1


def test_an_idle_worker_that_is_killed_is_replaced(make_lab):
    ready(lab := make_lab())
    pid = worker_pid(lab)
    os.kill(pid, signal.SIGKILL)
    until(lab, lambda s: lab._supervisor._process and worker_pid(lab) != pid and s.worker.state == "ready", "a new worker")
    assert result(lab).state == "done"


def test_half_a_line_and_three_deaths_in_a_row_end_the_run_not_the_lab(make_lab):
    lab = make_lab(half_line=True)
    run = result(lab)
    assert run.state == "failed" and "died 3 times in a row" in run.reason and "exit code 5" in run.reason
    assert any('"measure' in note for note in lab.notes)
    assert lab.snapshot().worker.state == "failed"


def test_a_worker_that_dies_at_start_without_a_word_is_tried_three_times(make_lab):
    worker = ready(make_lab(die_at_start=True))
    assert worker.state == "failed" and "3 times" in worker.text
    assert "ModuleNotFoundError: No module named 'torch'. Install what is missing: pip install" in worker.text


def test_a_command_that_does_not_exist_is_one_line(make_lab):
    lab = make_lab(command=["/does/not/exist", "x"])
    assert "/does/not/exist" in ready(lab).text and "\n" not in lab.snapshot().worker.text
    assert result(lab).state == "failed"


def test_a_worker_that_never_says_hello_is_given_up(make_lab):
    worker = ready(make_lab(start_s=3600, limits={"start_limit_s": 0.3}))
    assert "did not start within 0.3 s" in worker.text


def test_a_hello_that_cannot_be_read_is_given_up(make_lab):
    hello = [sys.executable, "-c", 'import sys; print(\'{"event": "hello"}\', flush=True); sys.stdin.read()']
    worker = ready(make_lab(command=hello))
    assert worker.state == "failed" and "device" in worker.text


def test_a_flood_of_garbage_is_a_timeout_and_fills_no_memory(make_lab):
    """An inbox without an end would take all that the worker writes."""
    lab = make_lab(flood_at=["flash", 256], limits={"time_limit_s": 1.0})
    run_id = lab.submit(QUICK)
    longest = 0
    while (snapshot := lab.snapshot(run_id)).run.active:
        longest = max(longest, lab._supervisor._inbox.qsize())
        lab.changed(snapshot.version, 0.05)
    assert statuses(snapshot.run) == all_ok_but(QUICK, "flash", 256, "timeout") | {("flash", 512): "skipped"}
    assert longest < 20_000 and len(lab.notes) <= 100  # no more than a pipe holds, where millions were written


def test_a_flood_of_garbage_is_cancelled(make_lab):
    lab = make_lab(flood_at=["flash", 256], limits={"cancel_limit_s": 0.3})
    run_id = lab.submit(QUICK)
    until(lab, lambda s: s.run and "flash at sequence 256" in s.run.activity, "the flood")
    pid = worker_pid(lab)
    lab.cancel(run_id)
    assert result(lab, replace(QUICK, seqs=(128,))).state == "done" and gone(pid)


def test_a_run_does_not_go_on_upon_another_device(make_lab, tmp_path):
    """A driver that vanishes: the next worker finds the CPU alone, whose numbers are no part of a GPU's run."""
    lab = make_lab(gone_at=["flash", 256], gone_file=str(tmp_path / "gone"))
    run = result(lab)
    assert run.state == "failed" and run.device.name == "NVIDIA H200"
    assert "NVIDIA H200 is gone" in run.reason and "Fake CPU" in run.reason and "nvidia-smi" in run.reason
    fault = run.get("flash", 256)
    assert fault.status == "fault" and "no CUDA-capable device" in fault.reason and "nvidia-smi" in fault.reason
    left = {("standard", 512): "unreached", ("flash", 512): "unreached"}
    assert statuses(run) == all_ok_but(QUICK, "flash", 256, "fault") | left
    assert lab.store.load(run.id).reason == run.reason == run.get("flash", 512).reason
    again = result(lab, replace(QUICK, seqs=(256,)))
    assert again.state == "done" and again.device.kind == "cpu"


def test_a_child_that_holds_the_output_open_does_not_hide_the_workers_death(make_lab):
    lab = make_lab(escape=True, die_at=["flash", 256])
    assert statuses(result(lab)) == all_ok_but(QUICK, "flash", 256, "fault")


# Time limit


def test_a_hang_is_a_timeout_and_the_sweep_goes_on(make_lab):
    lab = make_lab(hang_at=["standard", 256], limits={"time_limit_s": 0.5})
    run = result(lab)
    # A path that hung is not tried at longer lengths.
    assert statuses(run) == all_ok_but(QUICK, "standard", 256, "timeout") | {("standard", 512): "skipped"}
    assert "0.5 s" in run.get("standard", 256).reason


def test_a_hang_after_compiling_is_a_timeout_too(make_lab):
    at = ["standard", 256]
    lab = make_lab(compile_at=at, compile_s=0.1, hang_at=at, limits={"time_limit_s": 0.5})
    assert statuses(result(lab))["standard", 256] == "timeout"


def test_compiling_and_waiting_for_the_device_are_no_hangs(make_lab):
    lab = make_lab(compile_at=["flash", 256], compile_s=1.0, waiting_s=1.0, limits={"time_limit_s": 0.5})
    run_id = lab.submit(QUICK)
    seen = set()
    while (snapshot := lab.snapshot(run_id)).run.active:
        seen.add(snapshot.run.activity)
        lab.changed(snapshot.version, DEADLINE_S)
    assert statuses(snapshot.run) == all_ok_but(QUICK, "flash", 128, "ok")
    assert {"compiling flash", "another program measures on this device"} <= seen


def test_waiting_for_the_device_is_not_the_runs_time(make_lab):
    lab = make_lab(waiting_s=3600)
    lab.submit(QUICK)
    until(lab, lambda s: s.run and s.run.activity == "another program measures on this device", "the wait")
    assert lab._supervisor._job.paused_since is not None


# The time of a run


def test_a_run_is_cut_off_where_its_time_is_over_and_has_all_its_points(make_lab):
    """On a public server, where a plan that was wrong would hold the device."""
    lab = make_lab(hang_at=["standard", 256], limits={"run_limit_s": 2.0, "cancel_limit_s": 0.3})
    run = result(lab)
    assert run.state == "cancelled" and run.reason == "the 2 s that a run may take here are over"
    late = [m for m in run.measurements if not m.ok]
    assert len(run.measurements) == 6 and late and {m.status for m in late} == {"skipped"} and run.get("standard", 128).ok
    assert {m.reason for m in late} == {f"not measured: {run.reason}"}
    assert lab.store.load(run.id).measurements == run.measurements
    assert result(lab, replace(QUICK, seqs=(128,), paths=("flash",))).get("flash", 128).ok


def test_a_run_that_is_cut_off_while_it_is_refined_is_done(make_lab):
    lab = make_lab(hang_refined="everywhere", limits={"run_limit_s": 2.0, "cancel_limit_s": 0.3})
    run = result(lab, SWEEP)
    assert run.state == "done" and {m.status for m in run.measurements} == {"ok"} and len(run.measurements) == 6
    assert run.reason == "the 2 s that a run may take here are over"


# Cancel


def test_a_cancelled_run_is_seen_at_once_and_the_worker_stays_warm(make_lab):
    lab = make_lab(delay_s=0.1)
    run_id = lab.submit(QUICK)
    until(lab, lambda s: s.run and s.run.measurements, "a point")
    pid = worker_pid(lab)
    lab.cancel(run_id)
    run = lab.snapshot(run_id).run
    assert (run.state, run.reason) == ("cancelled", "stopped") and run.measurements
    again = result(lab, replace(QUICK, problem=replace(PROBLEM, batch=1)))
    assert again.state == "done" and worker_pid(lab) == pid
    assert lab.store.load(run_id).state == "cancelled"
    assert lab.snapshot(run_id).run.state == "cancelled" and len(lab.snapshot(run_id).run.measurements) < 6


def test_a_worker_that_ignores_cancel_is_replaced(make_lab):
    lab = make_lab(hang_at=["standard", 256], limits={"cancel_limit_s": 0.3})
    run_id = lab.submit(QUICK)
    until(lab, lambda s: s.run and "standard at sequence 256" in s.run.activity, "the hang")
    pid = worker_pid(lab)
    lab.cancel(run_id)
    assert lab.snapshot(run_id).run.state == "cancelled"
    run = result(lab, replace(QUICK, seqs=(128,)))
    assert run.state == "done" and gone(pid)
    assert "timeout" not in statuses(lab.snapshot(run_id).run).values()  # it was stopped, it did not fail


def test_a_cancel_is_over_within_2_s_when_the_worker_answers(make_lab):
    lab = make_lab(delay_s=30.0)  # it looks up now and then, as between two calls
    run_id = lab.submit(QUICK)
    until(lab, lambda s: s.run and s.run.activity, "the first path")
    pid, began = worker_pid(lab), time.monotonic()
    lab.cancel(run_id)
    until(lab, lambda s: s.worker.state == "ready", "the end of the step")
    assert time.monotonic() - began < 2.0 and worker_pid(lab) == pid


def test_a_cancel_is_over_within_5_s_when_it_does_not_and_nothing_is_left(make_lab):
    lab = make_lab(hang_at=["standard", 128], escape=True)  # with a child that holds its output, as a compiler's might
    run_id = lab.submit(QUICK)
    until(lab, lambda s: s.run and s.run.activity, "the hang")
    pid, began = worker_pid(lab), time.monotonic()
    left = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    assert len(left) == 2
    lab.cancel(run_id)
    for process in left:
        wait_gone(process)
    assert time.monotonic() - began < 5.0
    until(lab, lambda s: s.worker.state == "ready", "a fresh worker")


def test_a_cancelled_queued_run_never_starts(make_lab):
    lab = make_lab(delay_s=0.1)
    first, second = lab.submit(QUICK), lab.submit(replace(QUICK, seqs=(128,)))
    until(lab, lambda s: s.queue == (second,), "the first to start")
    lab.cancel(second)
    assert lab.snapshot().queue == ()
    assert lab.wait(first, DEADLINE_S).state == "done"
    assert lab.snapshot(second).run.measurements == ()
    assert lab.store.load(second).state == "cancelled"


def test_cancelling_what_has_ended_or_never_was_changes_nothing(make_lab):
    lab = make_lab()
    run = result(lab)
    lab.cancel(run.id)
    lab.cancel("no such run")
    assert lab.snapshot(run.id).run.state == "done" and lab.snapshot("no such run").run is None


def test_cancel_while_the_worker_is_still_starting(make_lab):
    lab = make_lab(start_s=0.5)
    run_id = lab.submit(QUICK)
    lab.cancel(run_id)
    assert lab.snapshot(run_id).run.state == "cancelled"
    assert result(lab, replace(QUICK, seqs=(128,))).state == "done"


def test_many_changes_of_mind_leave_the_last_one(make_lab):
    """A slider that is dragged: each position cancels the one before."""
    lab = make_lab(delay_s=0.01)
    ids = []
    for batch in range(1, 25):
        if ids:
            lab.cancel(ids[-1])
        ids.append(lab.submit(replace(QUICK, problem=replace(PROBLEM, batch=batch))))
    assert lab.wait(ids[-1], DEADLINE_S).state == "done"
    assert {lab.snapshot(run_id).run.state for run_id in ids[:-1]} == {"cancelled"}


def test_f23_a_running_sweep_does_not_change_with_the_form(make_lab):
    lab = make_lab(delay_s=0.05)
    running = lab.submit(replace(QUICK, problem=replace(PROBLEM, heads=16, kv_heads=16)))
    until(lab, lambda s: s.run and len(s.run.measurements) >= 2, "two points")
    lab.submit(replace(QUICK, problem=replace(PROBLEM, heads=8, kv_heads=8)))
    run = lab.wait(running, DEADLINE_S)
    assert run.state == "done" and [m.problem.heads for m in run.measurements] == [16] * 6


# Answers from the store


def test_a_setting_measured_before_is_answered_without_measuring(make_lab, tmp_path):
    lab = make_lab()
    first = result(lab, SWEEP)
    before = len(lab.store.recent())
    part = replace(SWEEP, seqs=(256,), paths=("flash",))
    snapshot = lab.snapshot(view := lab.submit(part))
    assert snapshot.run.state == "done" and snapshot.run.sweep == part and snapshot.run.id == view
    assert snapshot.run.measurements == (first.get("flash", 256),)
    assert snapshot.run.created == first.created
    assert lab.snapshot(lab.submit(SWEEP)).run.measurements == first.measurements
    assert lab.snapshot(view).run.sweep == part  # two views of one run do not disturb each other
    assert len(lab.store.recent()) == before
    assert result(lab, SWEEP, fresh=True).id.partition(":")[0] != first.id


def test_a_run_that_is_on_its_way_goes_before_an_older_answer(make_lab):
    """Or whoever reloads while something is measured again would see the old numbers, and could not stop it."""
    lab = make_lab(delay_s=0.05)
    first = result(lab)
    again = lab.submit(QUICK, fresh=True)
    assert lab.submit(QUICK) == again
    lab.cancel(again)
    assert lab.snapshot(lab.submit(QUICK)).run.created == first.created


def test_a_run_that_ends_while_the_store_is_asked_is_the_answer(make_lab, monkeypatch):
    """Not measured twice: with 25 viewers one of them presses at that moment."""
    lab = make_lab(delay_s=0.05)
    run_id, board, asked = lab.submit(QUICK), lab._board, []
    answer = board._answer

    def slow(sweep):
        asked.append(sweep)
        if len(asked) > 1:
            return answer(sweep)
        lab.wait(run_id)
        return ""  # what the store said before

    monkeypatch.setattr(board, "_answer", slow)
    monkeypatch.setattr(board, "_under_way", lambda sweep: "")  # ended since
    assert lab.submit(QUICK).partition(":")[0] == run_id and len(asked) == 2


def test_an_answer_is_there_before_the_worker_is(make_lab, tmp_path):
    ready(lab := make_lab())
    first = result(lab)
    lab.close()
    lab = make_lab(start_s=3600)
    snapshot = lab.snapshot(lab.submit(QUICK))
    assert snapshot.worker.state == "starting" and snapshot.worker.device == first.device
    assert snapshot.run.measurements == first.measurements
    assert lab.snapshot(first.id).run.measurements == first.measurements


def test_an_early_answer_from_another_device_says_so(make_lab):
    ready(lab := make_lab())
    result(lab)
    lab.close()
    lab = make_lab(start_s=0.5, uuid="another card")
    view = lab.submit(QUICK)
    assert lab.snapshot(view).run.reason == ""
    until(lab, lambda s: s.worker.state == "ready", "hello")
    assert "measure it again" in lab.snapshot(view).run.reason
    assert result(lab).device.uuid == "another card"


# The end


def test_close_ends_the_worker_and_the_run(make_lab):
    lab = make_lab(delay_s=0.2)
    run_id = lab.submit(QUICK)
    queued = lab.submit(replace(QUICK, seqs=(128,)))
    until(lab, lambda s: s.run and s.run.measurements, "a point")
    pid = worker_pid(lab)
    lab.close()
    lab.close()
    assert gone(pid)
    assert lab.store.load(run_id).state == lab.store.load(queued).state == "cancelled"
    assert lab.wait(run_id, 1).state == "cancelled"
    with pytest.raises(RuntimeError):
        lab.submit(QUICK)
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("attnlab")]
    assert left == []


def test_close_ends_a_worker_that_hangs(make_lab):
    lab = make_lab(hang_at=["standard", 128])
    lab.submit(QUICK)
    until(lab, lambda s: s.run and s.run.activity, "the hang")
    pid = worker_pid(lab)
    lab.close()
    assert gone(pid)


SERVER = """
import sys
sys.path.insert(0, {root!r})
from attnlab.lab import Lab
from attnlab.store import Store
lab = Lab(Store({home!r}), worker_command={fake!r})
while lab.snapshot().worker.state != "ready":
    lab.changed(lab.snapshot().version, 1)
print(lab._supervisor._process._popen.pid, flush=True)
{then}
"""


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_no_process_is_left_behind(tmp_path, then):
    code = SERVER.format(root=str(ROOT), home=str(tmp_path), fake=FAKE, then=then)
    server = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=DEADLINE_S)
    wait_gone(int(server.stdout))


def test_the_worker_module_is_found_from_any_directory(tmp_path, monkeypatch):
    """Only whether it is found: what it does then is the worker's own test."""
    monkeypatch.setenv("ATTNLAB_WORKER", "env FAKE=1")
    assert default_worker_command() == ["env", "FAKE=1", sys.executable, "-u", "-m", "attnlab.worker"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    find = "import importlib.util, sys; sys.exit('found' if importlib.util.find_spec('attnlab.worker') else 'lost')"
    lab = Lab(Store(tmp_path), worker_command=[sys.executable, "-c", find])
    try:
        assert ": found." in ready(lab).text
    finally:
        lab.close()


def test_a_step_behind_ceilings_that_wait_for_the_device_is_not_a_timeout(make_lab):
    """Two servers on a card that neither knows yet: the second one's worker waits with its ceilings, longer than a limit."""
    run = result(make_lab(ceilings_wait_s=1.5, limits={"time_limit_s": 0.5}))
    assert {m.status for m in run.measurements} == {"ok"}


def test_a_run_that_comes_while_the_ceilings_wait_is_told_so_and_waits_too(make_lab):
    """The second server's usual case: its page asks for a run when it knows the device, and that is being waited for."""
    lab = make_lab(ceilings_wait_s=1.5, limits={"time_limit_s": 0.5})
    ready(lab)
    until(lab, lambda s: s.worker.paths and s.worker.paths[0].state == "ready", "what it says after hello")
    time.sleep(0.3)  # the word that it waits has come, and there was no run to tell it of
    run_id, seen = lab.submit(QUICK), set()
    while (snapshot := lab.snapshot(run_id)).run.active:
        seen.add(snapshot.run.activity)
        lab.changed(snapshot.version, DEADLINE_S)
    assert "another program measures on this device" in seen
    assert statuses(snapshot.run) == all_ok_but(QUICK, "flash", 128, "ok")


# Looks at the answers


EXACTNESS = replace(QUICK, task="exactness")


def test_a_look_is_a_run_whose_points_carry_findings_and_no_time(make_lab):
    lab = make_lab()
    run = result(lab, EXACTNESS)
    assert run.state == "done" and set(statuses(run).values()) == {"ok"}
    assert all(m.findings[0].text == "exactness" and m.device_ms is None for m in run.measurements)
    again = lab.snapshot(lab.submit(EXACTNESS)).run
    assert again.measurements == run.measurements and again.id.startswith(run.id)  # from the store
    assert result(lab, QUICK).measurements[0].device_ms  # a look is no answer to how long it takes


def test_a_fault_in_a_look_costs_one_point(make_lab):
    run = result(make_lab(die_at=["flash", 256]), EXACTNESS)
    assert statuses(run) == all_ok_but(EXACTNESS, "flash", 256, "fault")
