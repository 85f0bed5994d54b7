"""The planner: pure arithmetic on given times, no worker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import CPU, H200

from attnlab import cost
from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.planner import (
    CHECKED_PAIRS,
    LONG_CALL_S,
    OVERHEAD_CALLS,
    QUICK_SAMPLES,
    REFINE_SHARE,
    REFINED_SAMPLES,
    Planner,
    Step,
    Untried,
    predict_ms,
    water_level,
)
from attnlab.problem import AttentionProblem
from attnlab.roofline import pace
from attnlab.sweep import Sweep, default_sweep, powers_of_two

GIB = 2**30

# Standard and flash at 128 … 16,384, as an H200 takes them (batch 4, heads 32, head dim 128, bfloat16), ms.
H200_MS = {
    "standard": (0.02, 0.05, 0.26, 0.73, 2.7, 12.0, 51.0, 140.0),
    "flash": (0.01, 0.02, 0.03, 0.08, 0.3, 1.1, 4.0, 16.0),
}


def problem_at(seq: int, sweep: Sweep | None = None) -> AttentionProblem:
    return (sweep or default_sweep("cuda")).problem.at_seq(seq)


def point(problem: AttentionProblem, path: str, ms: float | None, status: str = "ok", **more) -> Measurement:
    samples = QUICK_SAMPLES if ms else 0
    low, high = (ms * 0.95, ms * 1.05) if ms else (None, None)
    values = dict(device_ms=ms, device_ms_low=low, device_ms_high=high, samples=samples, wall_ms=ms)
    return Measurement(problem=problem, path=path, status=status, **{**values, **more})


def run_through(sweep: Sweep, device: Device, ms_of, free_bytes: int | None = None, elapsed_s: float = 0.0):
    """Plays the worker: every point takes what it takes, samples until its budget is used. → steps, points, seconds."""
    planner, steps, points, clock_s = Planner(sweep, device), [], {}, elapsed_s
    while plan := planner.next_step(points.values(), clock_s, device.free_bytes if free_bytes is None else free_bytes):
        if isinstance(plan, Untried):
            assert plan.measurements
            for m in plan.measurements:
                assert (m.path, m.seq) not in points
                points[m.path, m.seq] = m
            continue
        steps.append(plan)
        assert len(steps) < 100
        for path in plan.paths:
            ms = ms_of(path, plan.seq)
            have = 0 if plan.phase == "quick" else points[path, plan.seq].samples
            rested = pace(plan.problem, device, ms)
            sample_s = ms / 1e3 + (rested.share_s if rested else 0.0)
            new = max(plan.min_samples - have, min(300, int(plan.budget_s / sample_s)))
            overhead = OVERHEAD_CALLS
            if plan.phase == "refined" and device.kind == "cuda" and ms >= LONG_CALL_S * 1e3:
                overhead = 0
            clock_s += new * sample_s + overhead * ms / 1e3
            samples = have + new
            points[path, plan.seq] = point(plan.problem, path, ms, phase=plan.phase, samples=samples)
    return steps, points, clock_s


def h200_ms(path: str, seq: int) -> float:
    return H200_MS[path][powers_of_two(16_384).index(seq)]


# The quick pass


def test_the_quick_pass_goes_from_short_to_long_with_all_paths_in_one_step():
    sweep = default_sweep("cuda")
    steps, points, _ = run_through(sweep, H200, h200_ms)
    quick = [step for step in steps if step.phase == "quick"]
    assert [step.seq for step in quick] == list(sweep.seqs)
    assert all(step.paths == sweep.paths and step.min_samples == QUICK_SAMPLES for step in quick)
    assert steps[: len(quick)] == quick
    assert {m.status for m in points.values()} == {"ok"}


def test_the_default_sweep_played_with_times_of_an_h200_fits_its_limits():
    sweep = default_sweep("cuda")
    quick_steps, _, quick_s = run_through(replace(sweep, refine=False), H200, h200_ms)
    steps, points, all_s = run_through(sweep, H200, h200_ms)
    assert quick_s <= 1.5 and all_s <= 5.0  # arithmetic on given times, not a clock
    assert all(m.phase == "refined" and m.samples >= REFINED_SAMPLES for m in points.values())
    assert len(steps) == 2 * len(quick_steps) + 3  # hard work has visits of its own


def test_a_point_beyond_the_budget_is_skipped_with_its_prediction_in_words():
    sweep = Sweep(problem=problem_at(128), seqs=powers_of_two(65_536), budget_s=30, refine=False)

    def slow_ms(path, seq):  # 50 times an H200's time
        return 50 * cost.flops(problem_at(seq)) / (80e9 if path == "standard" else 600e9)

    _, points, seconds = run_through(sweep, H200, slow_ms, free_bytes=10**15)
    skipped = [m for m in points.values() if m.status == "skipped"]
    assert points["standard", 65_536] in skipped and points["flash", 128].ok
    assert seconds < 30 and len(points) == len(sweep.seqs) * 2
    for m in skipped:
        assert m.device_ms is None and m.samples == 0
        assert m.predicted_ms == pytest.approx(slow_ms(m.path, m.seq), rel=0.2)
        assert "of the run's 30 s are left for it; raise the budget" in m.reason and m.reason.startswith("predicted ")


def test_what_comes_after_the_budget_is_used_up_is_skipped_too():
    sweep = Sweep(problem=problem_at(128), seqs=(128, 256), budget_s=2)
    steps, points, _ = run_through(sweep, H200, h200_ms, elapsed_s=3.0)
    assert steps == [] and {m.status for m in points.values()} == {"skipped"}
    assert "0 s of the run's 2 s" in points["flash", 256].reason


def test_a_first_point_is_judged_by_a_conservative_rate():
    huge = Sweep(problem=problem_at(128), seqs=(131_072,), paths=("flash",), budget_s=30)
    _, points, _ = run_through(huge, CPU, lambda path, seq: 1.0, free_bytes=10**15)
    assert points["flash", 131_072].status == "skipped"
    small = Sweep(problem=problem_at(128), seqs=(128,), paths=("flash",), budget_s=30)
    _, points, _ = run_through(small, CPU, lambda path, seq: 1.0)
    assert points["flash", 128].ok


def test_predictions_see_through_launch_cost():
    tiny = AttentionProblem(batch=1, seq_q=128, heads=1, head_dim=64)
    known = [point(tiny, "flash", 0.020, launch_bound=True)]
    assert predict_ms(tiny.at_seq(256), "flash", known, "cuda") == pytest.approx(0.020)  # not four times the launch
    assert predict_ms(tiny.at_seq(256), "flash", [point(tiny, "flash", 0.020)], "cuda") == pytest.approx(0.080)
    one_token = [point(AttentionProblem(batch=1, seq_q=1, heads=2, head_dim=32, dtype="float32"), "flash", 0.06)]
    assert (
        predict_ms(replace(tiny, heads=2, kv_heads=2).at_seq(1024), "flash", one_token, "cpu") < 100
    )  # not a million times it
    known = [point(problem_at(seq), "standard", ms) for seq, ms in ((1024, 0.73), (2048, 2.7), (4096, 12.0))]
    assert predict_ms(problem_at(8192), "standard", known, "cuda") == pytest.approx(51, rel=0.1)
    noisy = [point(problem_at(256), "flash", 3.0), point(problem_at(512), "flash", 2.0)]
    assert (
        predict_ms(problem_at(1024), "flash", noisy, "cuda") >= 4.0
    )  # a time that fell by accident predicts no free lunch


def test_what_a_window_hides_is_work_for_standard_and_none_for_flash():
    windowed = replace(problem_at(16_384), causal=True, window=1024)
    shorter = windowed.at_seq(8192)
    for path, times in (("standard", 4.0), ("flash", 2.0)):
        expected_ms = predict_ms(windowed, path, [point(shorter, path, 10.0)], "cuda")
        assert expected_ms == pytest.approx(10.0 * times, rel=0.1)


def test_a_window_that_leaves_one_query_the_same_keys_at_every_length_is_the_same_work():
    decoding = Sweep(problem=replace(problem_at(1024), causal=True, window=64), seqs=(256, 512, 1024), seq_q=1)
    known = [point(decoding.at(seq), "flash", ms) for seq, ms in ((256, 0.02), (512, 0.03))]
    assert predict_ms(decoding.at(1024), "flash", known, "cuda") == pytest.approx(0.03)


def test_on_a_cpu_a_window_is_a_mask_that_takes_memory_and_hides_no_work():
    windowed = AttentionProblem(batch=1, seq_q=65_536, heads=1, head_dim=32, dtype="float32", window=64)
    shorter = point(windowed.at_seq(8192), "flash", 10.0)
    assert predict_ms(windowed.at_seq(16_384), "flash", [shorter], "cpu") == pytest.approx(40.0)
    planner = Planner(Sweep(problem=windowed, seqs=(65_536,), paths=("flash",), budget_s=1000), CPU)
    (refused,) = planner.next_step([], 0.0, 16 * GIB).measurements
    assert refused.foreseen and "of inputs and mask" in refused.reason, "20 GiB of mask do not fit into 16"
    assert isinstance(planner.next_step([], 0.0, 30 * GIB), Step)


def test_a_far_point_is_predicted_in_proportion():
    known = [point(problem_at(2048), "standard", 2.7), point(problem_at(4096), "standard", 12.0)]
    assert predict_ms(problem_at(65_536), "standard", known, "cuda") == pytest.approx(12.0 * 256)


def test_what_a_caller_waits_beside_the_work_does_not_grow_with_it():
    """A busy host made 0.6 ms of a wait for 0.04 ms of work; 128 times as far that was a skipped point."""
    known = [replace(point(problem_at(512), "flash", 0.04), wall_ms=0.6, launch_bound=bound) for bound in (False, True)]
    far = [predict_ms(problem_at(65_536), "flash", [one], "cuda") for one in known]
    assert far == [pytest.approx(0.04 * 128**2 + 0.56)] * 2
    more = [replace(point(problem_at(seq), "flash", ms), wall_ms=0.6) for seq, ms in ((256, 0.02), (512, 0.05))]
    assert predict_ms(problem_at(1024), "flash", more, "cuda") == pytest.approx(0.17 + 0.55)


def test_points_without_a_time_do_not_predict():
    known = [point(problem_at(128), "flash", None, "fault"), point(problem_at(256), "flash", None, "unsupported")]
    assert predict_ms(problem_at(512), "flash", known, "cuda") == predict_ms(problem_at(512), "flash", [], "cuda") > 0


def test_a_path_that_was_refused_is_asked_again_at_any_length():
    """The refusal of a kind of problem costs nothing, and `skipped` would hide it."""
    sweep = Sweep(problem=problem_at(128), seqs=(128, 65_536), paths=("flash",), budget_s=0.5)
    refused = point(problem_at(128), "flash", None, "unsupported")
    plan = Planner(sweep, H200).next_step([refused], 0.0, 10**15)
    assert isinstance(plan, Step) and plan.seq == 65_536


def test_a_path_that_timed_out_is_not_tried_at_longer_lengths():
    sweep = Sweep(problem=problem_at(128), seqs=(128, 256), budget_s=1000)
    points = [point(problem_at(128), "standard", None, "timeout"), point(problem_at(128), "flash", 0.1)]
    planner = Planner(sweep, H200)
    plan = planner.next_step(points, 60.0, H200.free_bytes)
    assert [(m.path, m.status) for m in plan.measurements] == [("standard", "skipped")]
    assert "time limit at sequence 128" in plan.measurements[0].reason
    plan = planner.next_step([*points, *plan.measurements], 60.0, H200.free_bytes)
    assert plan.paths == ("flash",)


# Memory


def test_memory_that_is_not_there_is_predicted_and_not_tried():
    sweep = Sweep(problem=problem_at(128), seqs=powers_of_two(65_536), budget_s=1000, refine=False)
    steps, points, _ = run_through(sweep, H200, lambda path, seq: 0.1)
    # Two score matrices of 4 × 32 × 32,768² × 2 B = 256 GiB each.
    assert {seq for (path, seq), m in points.items() if m.status == "oom"} == {32_768, 65_536}
    m = points["standard", 32_768]
    assert m.predicted_bytes == cost.predicted_peak_bytes(m.problem, "standard") and m.peak_bytes is None
    assert m.reason.startswith("predicted, not tried: needs ") and "GiB of device memory" in m.reason
    assert steps[-1].paths == ("flash",)


@pytest.mark.parametrize(("direction", "task"), [("forward+backward", "time"), ("forward", "exactness")])
def test_what_checking_an_answer_takes_of_a_host_is_refused_before_it_starts(direction, task):
    """Flash needs next to nothing; the float64 that it is held to fills a host."""
    problem = AttentionProblem(batch=1, seq_q=8192, heads=2, head_dim=64, dtype="float32", direction=direction)
    sweep = Sweep(problem=problem, seqs=(8192,), paths=("flash",), task=task, budget_s=10_000)
    (refused,) = Planner(sweep, CPU).next_step([], 0.0, 3 * GIB).measurements
    assert refused.status == "oom" and "checking the answer needs 3 GiB beside" in refused.reason
    assert "of host memory can be used" in refused.reason
    assert isinstance(Planner(sweep, CPU).next_step([], 0.0, 4 * GIB), Step)
    assert isinstance(Planner(sweep, H200).next_step([], 0.0, GIB), Step)  # a device says so itself


def test_a_timed_forward_pass_is_checked_in_some_rows_and_needs_no_room_for_it():
    sweep = Sweep(problem=AttentionProblem(batch=1, seq_q=8192, heads=2, head_dim=64, dtype="float32"), seqs=(8192,),
                  paths=("flash",), budget_s=10_000)  # fmt: skip
    assert isinstance(Planner(sweep, CPU).next_step([], 0.0, GIB // 4), Step)


def test_the_planner_knows_how_much_the_reference_holds_at_once():
    from attnlab.measure import accuracy
    from attnlab.paths import reference

    assert CHECKED_PAIRS == reference.CHUNK_ELEMENTS == accuracy.CHUNK_ELEMENTS


def test_out_of_memory_is_tried_for_real_on_a_device_when_asked_never_on_a_host():
    asked = Sweep(problem=problem_at(128), seqs=(32_768,), budget_s=1000, try_oom=True, refine=False)
    on_device = Planner(asked, H200).next_step([], 0.0, GIB)
    assert isinstance(on_device, Step) and on_device.paths == asked.paths
    no_time = replace(asked, budget_s=1e-9)  # failing takes none
    assert isinstance(Planner(no_time, H200).next_step([], 0.0, GIB), Step)
    on_host = Planner(asked, CPU).next_step([], 0.0, GIB)
    assert {m.status for m in on_host.measurements} == {"oom"}
    assert "host memory" in on_host.measurements[0].reason


def test_after_a_real_out_of_memory_longer_points_of_that_path_are_predicted():
    sweep = Sweep(problem=problem_at(128), seqs=(1024, 2048), budget_s=1000)
    points = [point(problem_at(1024), "standard", None, "oom"), point(problem_at(1024), "flash", 0.1)]
    plan = Planner(sweep, H200).next_step(points, 0.0, H200.free_bytes)
    assert [(m.path, m.seq, m.status) for m in plan.measurements] == [("standard", 2048, "oom")]
    assert "at sequence 1,024 already" in plan.measurements[0].reason
    tried = Sweep(problem=problem_at(128), seqs=(1024, 2048), budget_s=1000, try_oom=True)
    assert Planner(tried, H200).next_step(points, 0.0, H200.free_bytes).paths == ("standard", "flash")


# Refinement


def test_refinement_takes_the_longest_first_and_each_point_once():
    sweep = default_sweep("cuda")
    steps, _, _ = run_through(sweep, H200, h200_ms)
    refined = [step for step in steps if step.phase == "refined"]
    hard = [step for step in refined if pace(step.problem, H200, h200_ms(step.paths[0], step.seq))]
    assert [step.seq for step in refined[: -len(hard)]] == list(sweep.seqs)[::-1]
    assert [(step.seq, step.paths) for step in hard] == [(seq, ("flash",)) for seq in (4_096, 8_192, 16_384)]


def test_refinement_leaves_out_what_is_not_ok_or_sharp_already():
    sweep = Sweep(problem=problem_at(128), seqs=(128, 256))
    points = [
        point(problem_at(128), "standard", 1.0),
        point(problem_at(128), "flash", None, "unsupported"),
        point(problem_at(256), "standard", 4.0, samples=50, device_ms_low=3.99, device_ms_high=4.01),
        point(problem_at(256), "flash", 1.0, "suspect"),
    ]
    planner = Planner(sweep, H200)
    plan = planner.next_step(points, 0.1, H200.free_bytes)
    assert (plan.seq, plan.paths, plan.phase) == (128, ("standard",), "refined")
    points[0] = point(problem_at(128), "standard", 1.0, phase="refined")
    assert planner.next_step(points, 0.2, H200.free_bytes) is None


def test_a_host_is_visited_again_however_narrow_its_quick_samples_were():
    sweep = Sweep(problem=problem_at(128), seqs=(128,), paths=("flash",))
    narrow = point(problem_at(128), "flash", 7.0, samples=50, device_ms_low=6.99, device_ms_high=7.01)
    assert Planner(sweep, H200).next_step([narrow], 0.1, H200.free_bytes) is None
    plan = Planner(sweep, CPU).next_step([narrow], 0.1, CPU.free_bytes)
    assert plan.phase == "refined" and plan.paths == ("flash",)


def test_hard_work_comes_last_from_short_to_long_and_its_rests_are_reckoned_with():
    seqs = (4_096, 8_192, 16_384)
    ms = {"standard": (12.0, 51.0, 138.0), "flash": (1.5, 5.9, 24.0)}
    sweep = Sweep(problem=problem_at(16_384), seqs=seqs)
    points = {(p, s): point(problem_at(s), p, ms[p][i]) for i, s in enumerate(seqs) for p in ms}
    planner, elapsed_s, visited = Planner(sweep, H200), 1.2, []
    while step := planner.next_step(points.values(), elapsed_s, H200.free_bytes):
        assert step.min_samples == REFINED_SAMPLES
        visited.append((step.seq, step.paths))
        elapsed_s += step.predicted_s
        for path in step.paths:
            points[path, step.seq] = replace(points[path, step.seq], phase="refined")
    assert visited == [
        (16_384, ("standard",)),
        (8_192, ("standard",)),
        (4_096, ("standard",)),
        (4_096, ("flash",)),
        (8_192, ("flash",)),
        (16_384, ("flash",)),
    ]
    more = REFINED_SAMPLES - QUICK_SAMPLES
    flash_s = more * (
        0.0059 + pace(problem_at(8_192), H200, 5.9).rest_s + 0.024 + pace(problem_at(16_384), H200, 24).rest_s
    )
    assert elapsed_s - 1.2 >= more * (0.138 + 0.051) + flash_s


def test_refinement_that_was_not_asked_for_does_not_happen():
    sweep = Sweep(problem=problem_at(128), seqs=(128,), refine=False)
    points = [point(problem_at(128), path, 1.0) for path in sweep.paths]
    assert Planner(sweep, H200).next_step(points, 0.1, H200.free_bytes) is None


def test_refinement_ends_with_its_time_and_the_dearest_points_give_way():
    """The dearest point would take all of it: it stays as it is, the others are refined, and the run does not double."""
    sweep = Sweep(problem=problem_at(128), seqs=(128, 256, 512), budget_s=600)
    ms = {128: 1.0, 256: 200.0, 512: 12_000.0}
    points = {(p, s): point(problem_at(s), p, ms[s]) for s in sweep.seqs for p in sweep.paths}
    planner, elapsed_s = Planner(sweep, H200), 580.0  # the quick pass took most of the budget
    visited = []
    while plan := planner.next_step(points.values(), elapsed_s, H200.free_bytes):
        visited.append(plan.seq)
        for path in plan.paths:
            new = max(plan.min_samples - QUICK_SAMPLES, plan.budget_s * 1e3 / ms[plan.seq])
            elapsed_s += (new + OVERHEAD_CALLS) * ms[plan.seq] / 1e3
            points[path, plan.seq] = point(plan.problem, path, ms[plan.seq], phase="refined")
    assert visited == [256, 128]
    assert elapsed_s <= sweep.budget_s + 1e-6


def test_refinement_takes_a_share_of_the_budget_and_compiling_gives_it_no_more():
    sweep = Sweep(problem=problem_at(128), seqs=(128,), budget_s=30)
    points = [point(problem_at(128), path, 1.0) for path in sweep.paths]
    plan = Planner(sweep, H200).next_step(points, 20.0, H200.free_bytes)  # nearly all of it compiling
    assert 2 * plan.budget_s <= REFINE_SHARE * sweep.budget_s


def test_the_budget_bounds_refinement():
    sweep = Sweep(problem=problem_at(128), seqs=(128,), budget_s=1.0)
    points = [point(problem_at(128), path, 100.0) for path in sweep.paths]
    assert Planner(sweep, H200).next_step(points, 0.95, H200.free_bytes) is None


def test_equal_points_in_any_order_give_equal_plans():
    sweep = Sweep(problem=problem_at(128), seqs=(128, 256, 512))
    points = [point(problem_at(s), p, s / 100) for s in sweep.seqs for p in sweep.paths]
    forwards = Planner(sweep, H200).next_step(points, 0.5, H200.free_bytes)
    assert Planner(sweep, H200).next_step(reversed(points), 0.5, H200.free_bytes) == forwards


@pytest.mark.parametrize("needed", [[1.0], [1.0, 4.0], [3.0, 3.0, 3.0], [0.0, 0.1, 9.0]])
@pytest.mark.parametrize("spare", [0.0, 0.5, 30.0])
def test_a_water_level_uses_up_the_total(needed, spare):
    total = sum(needed) + spare
    level = water_level(needed, total)
    assert sum(max(need, level) for need in needed) == pytest.approx(total)


@pytest.mark.parametrize("path", ["standard", "flash"])
def test_what_a_forward_pass_has_saved_is_counted_beside_the_inputs(path):
    sweep = replace(default_sweep("cuda"), seqs=(4096,), paths=(path,), refine=False)
    sweep = replace(sweep, problem=replace(sweep.problem, direction="backward"))
    problem = sweep.at(4096)
    peak, inputs = cost.predicted_peak_bytes(problem, path), cost.input_bytes(problem)
    needed = peak + inputs + cost.saved_bytes(problem, path)
    assert isinstance(Planner(sweep, H200).next_step((), 0.0, needed), Step)
    (verdict,) = Planner(sweep, H200).next_step((), 0.0, needed - 1).measurements
    assert verdict.status == "oom" and "of inputs and what the forward pass has saved" in verdict.reason


def test_lengths_of_a_padded_batch_are_in_proportion_in_every_step():
    problem = replace(default_sweep("cuda").problem, batch=2, seq_q=512, seq_kv=512, lengths=(512, 301))
    steps, _, _ = run_through(Sweep(problem=problem, seqs=(128, 512), refine=False), H200, lambda path, seq: 0.1)
    assert [step.problem.lengths for step in steps] == [(128, 76), (512, 301)]
