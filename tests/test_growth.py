"""What the curves say, on curves whose law is known, and on runs in which something is missing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CPU, F25, H200

from attnlab import cost, growth
from attnlab.export import recorded_runs
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

PROBLEM = AttentionProblem(batch=4, seq_q=128, heads=32, head_dim=128)
SEQS = (128, 256, 512, 1024, 2048, 4096)


def run_of(curves, seqs=SEQS, device=H200, spread=0.0, **more):
    """`curves`: path → ms at each sequence (None where missing), each with an interval of ± `spread` of it."""
    points = [
        Measurement(
            problem=PROBLEM.at_seq(seq), path=path, status="ok", device_ms=ms, peak_bytes=int(1e3 * ms) or None,
            device_ms_low=ms * (1 - spread), device_ms_high=ms * (1 + spread),
        )
        for path, values in curves.items() for seq, ms in zip(seqs, values, strict=True) if ms is not None
    ]  # fmt: skip
    sweep = Sweep(problem=PROBLEM, seqs=seqs, paths=tuple(curves))
    return Run(
        id="r", sweep=sweep, state="done", created="2026-11-30", device=device, measurements=tuple(points), **more
    )


def powers(exponent, coefficient=1e-6, seqs=SEQS):
    return [coefficient * seq**exponent for seq in seqs]


def launch_bound_up_to(run, seq, path="flash"):
    marked = (replace(m, launch_bound=m.path == path and m.seq <= seq) for m in run.measurements)
    return replace(run, measurements=tuple(marked))


# Growth


@given(st.floats(0.5, 3), st.floats(1e-6, 1))
def test_a_power_is_found_again(exponent, coefficient):
    fit = growth.growth(run_of({"standard": powers(exponent, coefficient)}), "standard", "time")
    assert (fit.path, fit.quantity, fit.first_seq, fit.last_seq) == ("standard", "time", 128, 4096)
    assert fit.exponent == pytest.approx(exponent, abs=1e-6)
    assert fit.high - fit.low < 1e-6
    assert fit.at(1000) == pytest.approx(coefficient * 1000**exponent, rel=1e-5)


def test_the_interval_is_students_over_the_residuals():
    """On paper: x = 0, 1, 2, 3 and y = x plus 0.05, -0.05, -0.05, 0.05 (in ln 2): slope 1, residual sum 0.01, Σx² = 5."""
    ys = [0.05, 0.95, 1.95, 3.05]
    fit = growth.growth(run_of({"flash": [2**y for y in ys]}, seqs=(1, 2, 4, 8)), "flash", "time")
    assert fit.exponent == pytest.approx(1.0)
    assert fit.high - fit.exponent == pytest.approx(4.303 * math.sqrt(0.01 / 2 / 5))
    assert fit.law == "s^1.00 ± 0.14"


def test_the_points_own_intervals_widen_it():
    values = powers(2)
    exact = growth.growth(run_of({"flash": values}), "flash", "time")
    noisy = growth.growth(run_of({"flash": values}, spread=0.05), "flash", "time")
    assert exact.law == "s^2.00"
    # ± 5 % at six points ln 2 apart: Σ(x - mean)² = 17.5 ln² 2
    half = (math.log(1.05 / 0.95) / 2) / math.sqrt(17.5) / math.log(2)
    assert noisy.high - noisy.exponent == pytest.approx(half, rel=1e-6)


def test_three_uneven_points_say_nothing():
    run = run_of({"flash": [1.49, 5.85, 27.6]}, seqs=(4096, 8192, 16_384))
    assert growth.growth(run, "flash", "time") is None


def test_what_is_not_yet_asymptotic_is_left_out():
    """1 ms that does not grow beside s²: the local slopes are 0.1, 0.2, 0.7, 1.3, 1.8, 1.9, 2.0, 2.0."""
    seqs = (*SEQS, 8192, 16_384, 32_768)
    values = [1 + 1e-6 * seq**2 for seq in seqs]
    fit = growth.growth(run_of({"standard": values}, seqs=seqs), "standard", "time")
    assert (fit.first_seq, fit.last_seq) == (2048, 32_768)
    assert 1.8 < fit.exponent < 2.0
    assert growth.growth(run_of({"standard": values[:6]}), "standard", "time") is None  # the flat start is no law


def test_a_last_point_that_breaks_the_law_leaves_the_stretch_before_it():
    values = powers(2)
    values[-1] /= 2
    run = run_of({"standard": values, "flash": powers(2)})
    fit = growth.growth(run, "standard", "time")
    assert (fit.first_seq, fit.last_seq) == (128, 2048)
    assert "s^2.00 for standard (from 128 to 2,048) and as s^2.00 for flash (from 128 on)" in growth.lines(run)[0]


def test_launch_bound_points_count_for_memory_and_not_for_time():
    run = launch_bound_up_to(run_of({"flash": powers(2, 1e-3)}), 512)
    assert growth.growth(run, "flash", "time").first_seq == 1024
    assert growth.growth(run, "flash", "memory").first_seq == 128
    assert growth.growth(launch_bound_up_to(run, 1024), "flash", "time") is None  # two points are no fit
    assert growth.growth(launch_bound_up_to(run, 4096), "flash", "time") is None


def test_only_ok_points_count():
    run = run_of({"flash": powers(2)})
    spoiled = tuple(replace(m, status="suspect") if m.seq > 256 else m for m in run.measurements)
    assert growth.growth(replace(run, measurements=spoiled), "flash", "time") is None


def test_an_unknown_quantity_is_refused():
    with pytest.raises(ValueError, match="legal: time, memory"):
        growth.growth(F25, "flash", "speed")


# Crossover


@given(st.floats(0.2, 0.8), st.floats(300, 3000))
def test_the_crossing_of_two_powers_is_found_and_bracketed(gain, at):
    flash = powers(2 - gain)
    standard = [ms * (seq / at) ** gain for ms, seq in zip(flash, SEQS, strict=True)]
    found = growth.crossover(run_of({"standard": standard, "flash": flash}, spread=0.01), "flash")
    assert found.kind == "crossover"
    assert found.seq == pytest.approx(at, rel=2e-3, abs=1)
    edge = (1.01 / 0.99) ** (1 / gain)
    assert found.low == pytest.approx(at / edge, rel=1e-2)
    assert found.high == pytest.approx(at * edge, rel=1e-2)
    assert found.text.startswith("from about ") and found.text.endswith("flash is faster than standard")


@pytest.mark.parametrize(
    ("ratios", "kind", "words"),
    [
        ([2, 2, 3, 3, 4, 4], "faster", "from 128 to 4,096 flash is faster than standard, at every length measured"),
        ([0.5] * 6, "slower", "from 128 to 4,096 flash is slower than standard: no crossover in this range"),
        ([1.001, 0.999] * 3, "even", "from 128 to 4,096 flash is as fast as standard, as far as the samples can tell"),
        ([2, 2, 2, 2, 0.5, 0.5], "reversed", "from about 1,448 on (1,434 to 1,463) flash is slower than standard"),
        ([0.5, 2, 0.5, 0.5, 2, 2], "crossover", "from about 1,448 on (1,434 to 1,463) flash is faster than standard"),
        ([0.5] * 4 + [0.9, 1.005], "slower",
         "from 128 to 2,048 flash is slower than standard; beyond 2,048 the samples cannot tell"),
        ([0.5] + [1.001, 0.999] * 2 + [1.0], "slower",
         "at 128 flash is slower than standard; beyond 128 the samples cannot tell"),
        ([2, 2, 2, 2, 2, 0.995], "faster",
         "from 128 to 2,048 flash is faster than standard; beyond 2,048 the samples cannot tell"),
        ([2, 2, 2, 0.5, 0.5, 1.0], "reversed",
         "from about 724 on (717 to 731) flash is slower than standard; beyond 2,048 the samples cannot tell"),
        ([None, None, 2, None, None, None], "unknown", "not enough points for a crossover"),
        ([None] * 6, "unknown", "not enough points for a crossover"),
    ],
)  # fmt: skip
def test_every_answer_has_its_words(ratios, kind, words):
    standard = [None if r is None else 1.0 for r in ratios]
    flash = [None if r is None else 1 / r for r in ratios]
    found = growth.crossover(run_of({"standard": standard, "flash": flash}, spread=0.01), "flash")
    assert (found.kind, found.text) == (kind, words)
    assert (found.seq is None) == (kind not in ("crossover", "reversed"))


def test_an_end_that_the_points_do_not_bound_is_open():
    standard, flash = [0.995, 2, 2, 2, 2, 2], [1.0] * 6
    found = growth.crossover(run_of({"standard": standard, "flash": flash}, spread=0.01), "flash")
    assert found.kind == "crossover" and found.low is None and 128 < found.seq < found.high < 256
    assert "(" not in found.text


def test_no_crossover_is_announced_from_launch_bound_points():
    run = run_of({"standard": [1.0] * 6, "flash": [2.0, 2.0, 0.5, 0.5, 0.5, 0.5]})
    assert growth.crossover(run, "flash").kind == "crossover"
    found = growth.crossover(launch_bound_up_to(run, 256), "flash")
    assert (found.kind, found.seq) == ("launch-bound", None)
    assert found.text == "from 512 to 4,096 flash is faster than standard; up to 256 the host's launch cost dominates"
    noisy = replace(run, measurements=tuple(replace(m, launch_bound=m.seq == 1024) for m in run.measurements))
    assert growth.crossover(noisy, "flash") == growth.crossover(run, "flash")  # one above the crossing hides nothing
    whole = growth.crossover(launch_bound_up_to(run, 4096), "flash")
    assert (whole.kind, whole.seq) == ("launch-bound", None)
    assert whole.text == "no crossover can be told: up to 4,096 the host's launch cost dominates"


# Plateau


def speedups(*ratios, flash=None, **more):
    flash = flash or powers(2)
    return run_of({"standard": [r * ms for r, ms in zip(ratios, flash, strict=True)], "flash": flash}, **more)


def test_the_plateau_begins_where_no_later_speedup_is_higher():
    found = growth.plateau(speedups(1, 2, 3, 4, 4.1, 3.9, spread=0.01), "flash")
    assert (found.seq, round(found.speedup, 2)) == (1024, 4.0)
    assert found.text.endswith("; the work of both grows as s², so only a rate can change it.")
    assert found.text.count(". ") == 0  # nothing is said of what comes after


def test_intervals_that_are_too_wide_to_tell_make_no_plateau():
    ratios = (1, 2, 3, 4, 4.5, 4.5)
    assert growth.plateau(speedups(*ratios, spread=0.01), "flash").seq == 2048
    assert growth.plateau(speedups(*ratios, spread=0.1), "flash") is None


def test_a_speedup_that_still_grows_has_no_plateau():
    found = growth.plateau(speedups(1, 2, 3, 4, 5, 6), "flash")
    assert (found.seq, found.speedup) == (None, None)
    assert found.text == "The speed-up still grows at 4,096, the longest that both managed: 6.0×."


def test_the_rates_at_the_plateau_are_those_that_were_measured():
    run = speedups(1, 2, 3, 4, 4, 4)
    flash, standard = run.get("flash", 1024), run.get("standard", 1024)
    tflops = cost.flops(flash.problem) / flash.device_ms / 1e9
    moved = sum(step.moved_bytes for step in cost.standard_steps(standard.problem)) / standard.device_ms / 1e9
    text = growth.plateau(run, "flash").text
    assert f"flash computes {tflops:.3g} TFLOP/s ({tflops / 9.895:.0f} % of the dense peak)" in text
    assert f"standard moves {moved:.3g} TB/s ({moved / 0.048:.0f} % of the bandwidth)" in text
    slow = growth.plateau(speedups(1, 2, 4, 4, 4, 4, flash=powers(2, 1)), "flash").text
    assert f"{1e3 * cost.flops(PROBLEM.at_seq(512)) / 512**2 / 1e9:.3g} GFLOP/s" in slow and " GB/s" in slow
    on_a_host = growth.plateau(speedups(1, 2, 3, 4, 4, 4, device=CPU), "flash").text
    assert "TFLOP/s, standard moves" in on_a_host and "%" not in on_a_host


@pytest.mark.parametrize(
    ("standard_faster", "flash_slower", "told"),
    [(2, 1, ["the rate of standard rises"]), (1, 2, ["the rate of flash falls"]), (2, 2, ["rises", " and ", "falls"])],
)
def test_a_speedup_that_falls_is_laid_to_the_rate_that_changed(standard_faster, flash_slower, told):
    flash = powers(2)
    flash[-1] *= flash_slower
    ratios = [1, 2, 4, 8, 8, 8 / standard_faster / flash_slower]
    text = growth.plateau(speedups(*ratios, flash=flash), "flash").text
    assert f"At 4,096 it is {8 / standard_faster / flash_slower:.1f}×, because " in text
    assert all(words in text for words in told)
    assert ("rises" in text, "falls" in text) == (standard_faster > 1, flash_slower > 1)


def test_the_work_is_told_as_it_is_counted():
    run = speedups(1, 2, 3, 4, 4, 4)
    decode = replace(run, sweep=replace(run.sweep, seq_q=1))
    assert "; the work of both grows as s, so" in growth.plateau(decode, "flash").text
    windowed = tuple(replace(m, problem=replace(m.problem, window=64)) for m in run.measurements)
    assert "grows as" not in growth.plateau(replace(run, measurements=windowed), "flash").text  # of standard's alone


def test_a_speedup_that_never_grew_does_not_stop_growing():
    text = growth.plateau(speedups(2, 2, 2, 2, 2, 2), "flash").text
    assert text.startswith("The speed-up does not grow from 128 on, at 2.0×: ")


def test_what_is_equally_fast_has_no_speedup_to_tell_of():
    even = speedups(*[1.001, 0.999] * 3, spread=0.01)
    assert growth.plateau(even, "flash") is not None and "speed-up" not in " ".join(growth.lines(even))


def test_two_points_are_no_plateau():
    assert growth.plateau(speedups(2, 2, 2, seqs=(128, 256, 512), flash=[1, 2, 3]), "flash").seq == 128
    assert growth.plateau(speedups(2, 2, seqs=(128, 256), flash=[1, 2]), "flash") is None
    assert growth.plateau(F25, "flash") is None


# Lines


def test_lines_of_the_recorded_run():
    """On the H200: what a reader of the curves would say, in four sentences."""
    time, memory, crossing, settled = growth.lines(recorded_runs()[0]["h200"])
    assert time.startswith("With the sequence length s, time grows as s^2.")
    assert "s^2.00 for standard" in memory and "s^1.00 for flash" in memory
    assert crossing == "From 1,024 to 16,384 flash is faster than standard; up to 512 the host's launch cost dominates."
    assert settled.startswith("The speed-up stops growing at 8,192, at 8.8×: ")
    assert "because the rate of standard rises from 86.2 to 127 TFLOP/s" in settled


@pytest.mark.parametrize("state", ["running", "cancelled", "failed", "done"])
def test_too_little_says_nothing(state):
    run = run_of({"standard": [1.0, *[None] * 5], "flash": [None] * 6})
    assert growth.lines(replace(run, state=state)) == ()
    assert growth.lines(replace(run, state=state, measurements=())) == ()


def test_lines_of_a_run_without_a_pair():
    # F25: launch-bound, out of memory and skipped, so nothing to compare and nothing to fit
    assert growth.lines(F25) == ("No crossover can be told: up to 1,024 the host's launch cost dominates.",)
    alone = growth.lines(run_of({"standard": powers(2)}))
    assert len(alone) == 2 and all("flash" not in line for line in alone)
    others = growth.lines(run_of({"flash": powers(2), "sdpa-math": powers(2)}))
    assert len(others) == 2 and all("standard" not in line for line in others)


def test_lines_are_sentences():
    for line in growth.lines(speedups(1, 2, 3, 4, 4, 3)):
        assert line[0].isupper() and line.endswith(".") and "\n" not in line
