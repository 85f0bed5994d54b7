"""Every path on one problem: fastest first, and why the others have no number."""

from dataclasses import replace

from samples import F25, H200

from attnlab.device import PathStatus
from attnlab.export import recorded_runs
from attnlab.ladder import NOT_IN_RUN, ladder
from attnlab.measurement import Measurement
from attnlab.paths import PATHS
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)


def run_of(*points, paths=("standard", "flash", "sdpa-cudnn"), state="done"):
    sweep = Sweep(problem=PROBLEM, seqs=(4096,), paths=paths)
    return Run(id="r", sweep=sweep, state=state, created="2026-11-30", device=H200, measurements=points)


def point(path, ms=None, status="ok", **more):
    return Measurement.of(PROBLEM, path, status, device_ms=ms, **more)


def test_the_fastest_stands_on_top_with_its_speedup():
    rungs = ladder(run_of(point("standard", 12.0), point("flash", 1.5), point("sdpa-cudnn", 1.6)), 4096)
    assert [(r.place, r.path, r.speedup) for r in rungs[:3]] == [
        (1, "flash", 8.0), (2, "sdpa-cudnn", 7.5), (3, "standard", 1.0),
    ]  # fmt: skip
    assert {r.path for r in rungs} == set(PATHS) and len(rungs) == len(PATHS)
    assert all(r.place is None and r.note == NOT_IN_RUN for r in rungs[3:])


def test_what_has_no_number_says_why():
    suspect = point("flash", 0.01, "suspect", reason="impossible: implies 36,650 TFLOP/s")
    broken = PathStatus(name="flash-attn-2", state="missing", reason="flash-attn-2 is not installed")
    run = run_of(point("standard", status="oom", reason="out of memory, asked for 64 GiB"), suspect)
    notes = {r.path: (r.place, r.note) for r in ladder(run, 4096, [broken])}
    assert notes["standard"] == (None, "out of memory: out of memory, asked for 64 GiB")
    assert notes["flash"] == (None, "suspect: impossible: implies 36,650 TFLOP/s")
    assert notes["sdpa-cudnn"] == (None, "not measured at this length")
    assert notes["flash-attn-2"] == (None, "missing: flash-attn-2 is not installed")
    assert {r.path: r.note for r in ladder(replace(run, state="running"), 4096)}["sdpa-cudnn"] == "still to be measured"


def test_of_what_nobody_began_the_reason_is_not_said_once_a_rung():
    lost = [point(path, status="unreached", reason="no worker starts") for path in ("standard", "flash")]
    notes = {rung.path: rung.note for rung in ladder(run_of(*lost, state="failed"), 4096)}
    assert notes["standard"] == notes["flash"] == "not reached"


def test_launch_bound_points_have_a_place_and_no_speedup():
    rungs = ladder(run_of(point("standard", 0.05), point("flash", 0.01, launch_bound=True)), 4096)
    assert [(r.path, r.speedup) for r in rungs[:2]] == [("flash", None), ("standard", 1.0)]
    assert "launch-bound" in rungs[0].note


def test_the_recorded_run_has_its_six_paths_on_the_ladder():
    rungs = ladder(recorded_runs()[0]["h200"], 4096)
    assert next(r.path for r in rungs if r.place) == "flash" and sum(r.place is not None for r in rungs) == 6
    assert ladder(F25, 65_536)[0].path == "flash"
