"""Claims: each verdict is a rule, held here against made-up runs; what cannot be tested says why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import CPU, H200

from attnlab import claims
from attnlab.claims import CANNOT, CLAIMS, FAILS, HOLDS, OPEN, Judged, newest, sentence, verdict
from attnlab.export import recorded_runs
from attnlab.finding import Finding
from attnlab.measurement import Measurement
from attnlab.run import Run

BY_NAME = {claim.name: claim for claim in CLAIMS}
A100, H100 = (replace(H200, name=name) for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"))


def measured(claim, values, device=H200, **more):
    """A run of the claim's sweep; `values`: (path, seq) → device_ms, or (device_ms, peak_bytes)."""
    sweep = claim.sweep(device.kind)
    points = []
    for (path, seq), value in values.items():
        ms, peak = value if isinstance(value, tuple) else (value, 1 << 20)
        points.append(Measurement.of(sweep.at(seq), path, "ok", device_ms=ms, peak_bytes=peak, **more))
    return Run(id="a", sweep=sweep, state="done", created="2026-11-30", device=device, measurements=tuple(points))


def ratios(claim, by_seq, **more):
    return measured(
        claim, {(p, s): r if p == claim.paths[0] else 1.0 for s, r in by_seq.items() for p in claim.paths}, **more
    )


@pytest.mark.parametrize(
    ("name", "by_seq", "wanted"),
    [
        ("h-series", {128: 3.0, 1024: 4.0, 16384: 5.0}, HOLDS),
        ("h-series", {128: 3.0, 1024: 6.0, 16384: 5.0}, FAILS),
        ("at-512", {512: 3.4}, HOLDS),
        ("at-512", {512: 6.1}, FAILS),
        ("beyond-4k", {4096: 10.0, 8192: 12.0, 16384: 11.0}, HOLDS),
        ("beyond-4k", {4096: 10.0, 8192: 8.8, 16384: 5.0}, FAILS),
        ("optimised", {1024: 2.0, 2048: 3.0, 4096: 4.0}, HOLDS),
        ("optimised", {1024: 2.0, 2048: 3.0, 4096: 4.1}, FAILS),
    ],
)
def test_a_range_of_speed_ups_holds_at_every_length_or_not_at_all(name, by_seq, wanted):
    judged = verdict(BY_NAME[name], ratios(BY_NAME[name], by_seq), H200)
    assert judged.verdict == wanted and "×" in judged.measured


def test_a_launch_bound_point_announces_no_speed_up():
    claim = BY_NAME["at-512"]
    judged = verdict(claim, ratios(claim, {512: 3.0}, launch_bound=True), H200)
    assert judged.verdict == CANNOT and "launch-bound" in judged.measured


def test_a_run_that_no_worker_came_for_leaves_a_claim_open():
    claim = BY_NAME["at-512"]
    lost = [Measurement.of(claim.sweep("cuda").at(512), path, "unreached", reason="why") for path in claim.paths]
    run = replace(ratios(claim, {512: 3.0}), state="failed", measurements=tuple(lost))
    assert verdict(claim, run, H200) == Judged(OPEN, "")


def test_a_point_without_a_number_says_why_there_is_no_speed_up():
    claim = BY_NAME["at-512"]
    run = ratios(claim, {512: 3.0})
    lost = replace(run.measurements[0], status="oom", device_ms=None, reason="out of memory")
    judged = verdict(claim, replace(run, measurements=(lost, run.measurements[1])), H200)
    assert judged == Judged(CANNOT, "standard at 512: out of memory")


@pytest.mark.parametrize(("flash", "wanted"), [({512: 1.0, 2048: 4.0}, HOLDS), ({512: 1.0, 2048: 15.0}, FAILS)])
def test_growth_is_between_the_longest_length_and_a_quarter_of_it(flash, wanted):
    claim = BY_NAME["growth"]
    standard = {("standard", 512): 4.0, ("standard", 2048): 64.0}
    run = measured(claim, standard | {("flash", s): ms for s, ms in flash.items()}, device=CPU)
    judged = verdict(claim, run, CPU)
    assert judged.verdict == wanted and "standard s^2.00" in judged.measured


def test_memory_that_grows_in_proportion_is_not_level():
    claim = BY_NAME["memory-level"]
    level, linear = (
        {("flash", s): (1.0, peak(s)) for s in (512, 2048)} for peak in (lambda s: 1 << 20, lambda s: s << 10)
    )
    assert verdict(claim, measured(claim, level, device=CPU), CPU).verdict == HOLDS
    judged = verdict(claim, measured(claim, linear, device=CPU), CPU)
    assert judged == Judged(FAILS, "flash adds memory as s^1.00 from 512 to 2,048")


def test_what_fitted_2k_fits_16k_compares_what_both_add():
    claim = BY_NAME["16k-for-2k"]
    values = {("standard", 2048): (1.0, 2 << 30), ("flash", 16384): (1.0, 512 << 20)}
    assert verdict(claim, measured(claim, values), H200).verdict == HOLDS
    values["flash", 16384] = (1.0, 3 << 30)
    assert verdict(claim, measured(claim, values), H200).verdict == FAILS


@pytest.mark.parametrize(
    ("at_2k", "at_4k", "wanted"), [(10, 20, HOLDS), (30, 40, HOLDS), (10, 19, FAILS), (9, 20, FAILS)]
)
def test_a_memory_ratio_is_reached_at_each_length(at_2k, at_4k, wanted):
    claim = BY_NAME["fa1-memory"]
    values = {("standard", 2048): (1.0, at_2k << 20), ("standard", 4096): (1.0, at_4k << 20)}
    run = measured(claim, values | {("flash", s): (1.0, 1 << 20) for s in (2048, 4096)})
    assert verdict(claim, run, H200).verdict == wanted


@pytest.mark.parametrize(("tflops", "wanted"), [(740, HOLDS), (670, HOLDS), (660, FAILS)])
def test_a_published_rate_is_reached_within_a_tenth(tflops, wanted):
    claim = BY_NAME["fa3-rate"]
    flops = measured(claim, {("flash-attn-3", 16384): 1.0}).measurements[0].flops
    run = measured(claim, {("flash-attn-3", 16384): flops / tflops / 1e9}, device=H100)
    judged = verdict(claim, run, H100)
    assert judged == Judged(wanted, f"{tflops} TFLOP/s at 16,384")


def test_equal_numbers_are_equally_far_from_float64():
    claim = BY_NAME["bit-for-bit"]
    sweep = claim.sweep("cuda")

    def run(**errors):
        points = [
            Measurement.of(sweep.at(1024), path, "ok",
                           findings=(Finding(what="O", verdict="pass", values={"relative": e, "max_abs": e}),))
            for path, e in errors.items()
        ]  # fmt: skip
        return Run(id="a", sweep=sweep, state="done", created="", device=H200, measurements=tuple(points))

    assert verdict(claim, run(standard=5.7e-3, flash=2.2e-3), H200) == Judged(
        FAILS, "2.2e-3 from float64, standard 5.7e-3"
    )
    assert verdict(claim, run(standard=5.7e-3, flash=5.7e-3), H200).verdict == HOLDS


def test_a_claim_about_one_card_is_tested_on_that_card_alone():
    fa2 = BY_NAME["fa2-rate"]
    assert fa2.untestable(A100) == "" and "A100" in fa2.untestable(H200) and "GPU" in BY_NAME["at-512"].untestable(CPU)
    assert verdict(fa2, None, A100).verdict == OPEN and verdict(fa2, None, H200).verdict == CANNOT
    assert verdict(fa2, None, None).verdict == OPEN  # no device is known yet
    h20 = replace(H200, name="NVIDIA H20")
    assert BY_NAME["h-series"].untestable(H100) == "" and BY_NAME["h-series"].untestable(h20)


def test_a_longer_run_answers_a_claim_about_some_of_it_and_the_rest_is_left_out():
    long, short = BY_NAME["h-series"], BY_NAME["at-512"]
    run = ratios(long, {512: 3.0, 1024: 9.0, 16384: 9.0})
    assert newest(short, [run]) is run and verdict(short, run, H200).verdict == HOLDS
    other = replace(run, sweep=replace(run.sweep, problem=replace(run.sweep.problem, causal=True)))
    assert newest(short, [other]) is None
    assert newest(short, [run, replace(run, id="b", created="2027-01-01")]).id == "b"


def test_every_claim_can_be_asked_and_has_a_name_of_its_own():
    assert len(BY_NAME) == len(CLAIMS) == 13
    for claim in CLAIMS:
        for kind in ("cuda", "cpu"):
            sweep = claim.sweep(kind)
            assert sweep.task == claim.task and claim.source and claim.setting


def test_the_count_is_a_sentence():
    judged = [Judged(v, "") for v in (HOLDS, FAILS, FAILS, CANNOT, OPEN)]
    assert sentence(judged) == (
        "Of 5 claims 1 holds here, 2 do not hold, 1 cannot be tested here, 1 is not measured yet."
    )


def test_the_recorded_run_judges_what_it_measured():
    runs, _ = recorded_runs()
    run = newest(BY_NAME["beyond-4k"], runs.values())
    assert verdict(BY_NAME["beyond-4k"], run, run.device).verdict == FAILS
    assert verdict(BY_NAME["16k-for-2k"], run, run.device).verdict == claims.HOLDS
