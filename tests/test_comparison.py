"""Runs side by side, on paper: what differs, the ratios with their intervals, what is called out and what is not."""

from __future__ import annotations

import json
from dataclasses import replace

import looks
import pytest
from samples import F25, H200

from attnlab import comparison, comparison_figure
from attnlab.chart_style import TOKENS
from attnlab.comparison import MEMORY, PACKAGE, PROVIDER, callouts, differences, ratios, sentence
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

SWEEP = Sweep(problem=AttentionProblem(batch=4, seq_q=8192, heads=32, head_dim=128), seqs=(2048, 4096, 8192))
PACKAGES = (("flash-attn-4", "4.0.0b23"),)
CARD = replace(H200, torch="2.11.0", cuda="13.0", driver="570.1", packages=PACKAGES, host="lab", python="3.12")
PROVIDERS = {"standard": "PyTorch 2.11.0 · gemm", "flash": "flash-attn-4 4.0.0b23 · forward"}


def point(path, seq, ms, half=0.01, sweep=SWEEP, provider=None, status="ok", **more):
    """A point whose interval reaches `half` of its median to both sides; None: no interval is known."""
    known = {} if half is None else {"device_ms_low": ms * (1 - half), "device_ms_high": ms * (1 + half), "samples": 20}
    provider = PROVIDERS.get(path, "") if provider is None else provider
    more = {"clock": "events", "l2": "cold", "clock_mhz": 1980.0} | more
    return Measurement(
        problem=sweep.at(seq), path=path, status=status, device_ms=ms, provider=provider, **known, **more
    )


def run(*points, sweep=SWEEP, device=CARD, name="a", **more):
    return Run(id=name, sweep=sweep, state="done", created="2026-11-30", device=device, measurements=points, **more)


def newer(m, **more):
    return replace(m, provider=m.provider.replace("b23", "b36"), **more)


BEFORE = run(*(point(path, seq, ms * seq) for path, ms in (("standard", 3.0), ("flash", 1.0)) for seq in SWEEP.seqs))
UPDATED = replace(CARD, packages=(("flash-attn-4", "4.0.0b36"),))


def times(m, factor):
    return replace(m, **{f: getattr(m, f) * factor for f in ("device_ms", "device_ms_low", "device_ms_high")})


def test_a_newer_package_that_is_slower_is_called_out_in_its_own_name():
    after = run(
        *(
            times(newer(m), 1.06) if m.path == "flash" and m.seq == 8192 else newer(m) if m.path == "flash" else m
            for m in BEFORE.measurements
        ),
        device=UPDATED,
        name="b",
    )
    (told,) = callouts((BEFORE, after))
    assert told.text == "flash-attn-4 4.0.0b36 is 6 % slower than 4.0.0b23 at 8,192."
    assert sentence((BEFORE, after)) == told.text and told.weight == pytest.approx(1.06)
    found = [(d.kind, d.what, d.values) for d in differences((BEFORE, after))]
    assert found == [
        (PACKAGE, "flash-attn-4", ("4.0.0b23", "4.0.0b36")),
        (PROVIDER, "flash", ("flash-attn-4 4.0.0b23", "flash-attn-4 4.0.0b36")),
    ]


def test_the_ratio_has_the_interval_that_both_intervals_leave_possible():
    a, b = run(point("flash", 2048, 10.0, 0.02)), run(point("flash", 2048, 12.0, 0.05), name="b")
    (ratio,) = ratios(a, b)
    assert ratio.value == pytest.approx(1.2)
    assert ratio.interval == pytest.approx((12 * 0.95 / (10 * 1.02), 12 * 1.05 / (10 * 0.98)))
    assert ratio.apart and ratio.called_out and ratio.words == "20 % slower"
    (back,) = ratios(b, a)
    assert back.interval == pytest.approx((1 / ratio.interval[1], 1 / ratio.interval[0]))
    assert back.words == "20 % faster"  # as much faster as the other is slower


def test_intervals_that_touch_call_nothing_out():
    a, b = run(point("flash", 2048, 10.0, 0.02)), run(point("flash", 2048, 10.3, 0.02), name="b")
    assert callouts((a, b)) == () and ratios(a, b)[0].words == "as fast, within the intervals"
    assert sentence((a, b)) == "1 point compared, and none differs beyond the intervals."


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"launch_bound": True}, "launch-bound"),
        ({"l2": "hot"}, "timed differently"),
        ({"clock": "host"}, "timed differently: events and host"),
        ({"clock_mhz_low": 1500.0, "clock_mhz_high": 1980.0}, "the clock moved meanwhile"),
        ({"clock_mhz": 1500.0}, "at different clocks: 1,980 and 1,500 MHz"),
        ({"half": None}, "no interval is known"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_what_was_not_timed_alike_is_not_called_out(change, doubt, swapped):
    pair = [run(point("flash", 2048, 10.0)), run(point("flash", 2048, 20.0, **change), name="b")]
    if swapped:
        pair.reverse()
        doubt = doubt.split(":")[0]
    (ratio,) = ratios(*pair)
    assert ratio.doubt.startswith(doubt) and ratio.words == ratio.doubt
    assert not ratio.called_out and callouts(pair) == ()
    assert "1 cannot be compared" in sentence(pair)


def test_other_cards_have_other_clocks():
    a100 = replace(CARD, name="NVIDIA A100", uuid="GPU-2", driver="535.1")
    pair = run(point("flash", 2048, 20.0, clock_mhz=1410.0), device=a100), run(point("flash", 2048, 10.0), name="b")
    assert [told.text for told in callouts(pair)] == [
        "flash is 2.0× faster on NVIDIA H200 than on NVIDIA A100 at 2,048."
    ]
    assert [d.what for d in differences(pair)] == ["device", "driver"]  # that the card is another goes without saying


@pytest.mark.parametrize("status", ["oom", "suspect", "skipped", "fault"])
def test_only_ok_points_are_compared(status):
    a, b = run(point("flash", 2048, 10.0)), run(point("flash", 2048, 20.0, status=status), name="b")
    assert ratios(a, b) == () and ratios(b, a) == ()
    assert sentence((a, b)).startswith("These runs have no path and sequence length")


@pytest.mark.parametrize(
    ("device", "sweep", "than"),
    [
        (replace(CARD, driver="580.2"), SWEEP, "with driver 580.2 than with driver 570.1"),
        (replace(CARD, torch="2.13.0"), SWEEP, "with torch 2.13.0 than with torch 2.11.0"),
        (replace(CARD, torch="2.13.0", driver="580.2"), SWEEP, "in B than in A"),
        (replace(CARD, driver=""), SWEEP, "in B than in A"),
        (replace(CARD, uuid="GPU-2"), SWEEP, "in B than in A"),
        (CARD, replace(SWEEP, problem=replace(SWEEP.problem, batch=8)), "with batch 8 than with batch 4"),
        (CARD, SWEEP, "in B than in A"),
    ],
)
def test_a_change_is_told_by_the_one_thing_that_differs(device, sweep, than):
    provider = f"PyTorch {device.torch} · gemm"
    after = run(point("standard", 2048, 9000.0, sweep=sweep, provider=provider), sweep=sweep, device=device, name="b")
    assert callouts((BEFORE, after))[0].text == f"standard is 46 % slower {than} at 2,048."


def test_a_path_that_ran_something_else_says_what():
    after = run(point("flash", 2048, 4096.0, provider="PyTorch 2.11.0 · flash"), name="b")
    assert (
        callouts((BEFORE, after))[0].text
        == "flash (PyTorch 2.11.0) is 2.0× slower than with flash-attn-4 4.0.0b23 at 2,048."
    )


def test_several_lengths_are_one_sentence_and_both_directions_two():
    factors = {2048: 1.1, 4096: 1.3, 8192: 0.5}
    after = run(*(times(m, factors[m.seq]) if m.path == "flash" else m for m in BEFORE.measurements), name="b")
    assert [told.text for told in callouts((BEFORE, after))] == [
        "flash is 2.0× faster in B than in A at 8,192.",
        "flash is 10 to 30 % slower in B than in A at 2,048 and 4,096.",
    ]
    assert sentence((BEFORE, after)).endswith("at 8,192; 1 more change below.")


def test_three_runs_are_held_against_the_first():
    slower = run(*(times(m, 1.5) for m in BEFORE.measurements), name="b")
    slowest = run(*(times(m, 3) for m in BEFORE.measurements), name="c")
    texts = [told.text for told in callouts((BEFORE, slower, slowest))]
    assert texts[0] == "standard is 3.0× slower in C than in A at 2,048, 4,096 and 8,192." and len(texts) == 4


def test_equal_runs_differ_in_nothing():
    assert differences((BEFORE, replace(BEFORE, id="b"))) == ()


def test_shapes_and_the_way_of_measuring_are_told():
    problem = replace(SWEEP.problem, causal=True, window=512, dtype="float16", direction="forward+backward")
    other = replace(SWEEP, problem=problem, seq_q=1, l2="hot", precision=0.05)
    found = {d.what: d.values for d in differences((BEFORE, run(sweep=other, device=None, name="b")))}
    assert found["causal mask"] == ("no", "yes") and found["window"] == ("–", "512")
    assert found["dtype"] == ("bfloat16", "float16") and found["queries"] == ("as many as keys", "1")
    assert found["sharp within"] == ("1 %", "5 %") and found["device"] == ("NVIDIA H200", "–")
    assert next(iter(found)) == "device" and "card" not in found


def test_looks_at_answers_have_no_ratio():
    pair = looks.exactness(), looks.exactness()
    assert ratios(*pair) == () and callouts(pair) == ()


# Memory


def peaks(points, factors, **more):
    """A point of memory for each path and length; times the factor of its path."""
    return run(*(replace(m, peak_bytes=int(m.seq * 1000 * factors.get(m.path, 1)), memory_source="allocator") for m in points),
               **more)  # fmt: skip


SMALL = peaks(BEFORE.measurements, {})


def test_memory_that_has_changed_is_called_out_with_its_ratio():
    after = peaks(map(newer, BEFORE.measurements), {"flash": 1.06, "standard": 1.004}, device=UPDATED, name="b")
    found = {(r.path, r.seq): r for r in ratios(SMALL, after, MEMORY)}
    assert len(found) == 6 and found["flash", 2048].value == pytest.approx(1.06)
    assert found["flash", 2048].words == "6 % more" and found["standard", 2048].words == "as much"
    assert {r.interval for r in found.values()} == {None}, "it is counted, and has none"
    (told,) = callouts((SMALL, after), MEMORY)
    assert told.text == "flash-attn-4 4.0.0b36 needs 6 % more memory than 4.0.0b23 at 2,048, 4,096 and 8,192."
    assert sentence((SMALL, after), MEMORY) == told.text and callouts((SMALL, after)) == ()
    assert sentence((SMALL, after)) == "6 points compared, and none differs beyond the intervals."


def test_less_memory_is_said_as_a_factor_beyond_twofold():
    after = peaks(BEFORE.measurements, {"flash": 0.25, "standard": 0.8}, name="b")
    assert [told.text for told in callouts((SMALL, after), MEMORY)] == [
        "flash needs 4.0× less memory in B than in A at 2,048, 4,096 and 8,192.",
        "standard needs 20 % less memory in B than in A at 2,048, 4,096 and 8,192.",
    ]


def test_no_memory_is_called_out_that_is_equal_or_was_counted_otherwise():
    same = peaks(BEFORE.measurements, {}, name="b")
    assert sentence((SMALL, same), MEMORY) == "6 points compared, and none differs by 1 % of memory."
    host = run(
        *(replace(m, peak_bytes=2 * m.peak_bytes, memory_source="profiler") for m in SMALL.measurements), name="b"
    )
    assert callouts((SMALL, host), MEMORY) == () and "6 cannot be compared" in sentence((SMALL, host), MEMORY)
    assert ratios(SMALL, host, MEMORY)[0].words == "counted differently: allocator, profiler"
    assert ratios(SMALL, BEFORE, MEMORY) == (), "what is not known has no ratio"


def test_a_launch_bound_point_has_its_memory_all_the_same():
    after = run(*(replace(m, launch_bound=True, peak_bytes=2 * m.peak_bytes) for m in SMALL.measurements), name="b")
    assert len(callouts((SMALL, after), MEMORY)) == 2 and callouts((SMALL, after)) == ()


# Charts


def lines(figure):
    return {trace["uid"]: trace for trace in figure["data"]}


def test_the_charts_hold_the_numbers_and_nothing_for_what_has_none():
    pair = F25, replace(F25, id="b")
    found = lines(comparison_figure.latency(pair, ["standard", "flash"]))
    assert found["B standard-line"]["y"] == [0.12, None, None] and found["A flash-line"]["y"] == [0.05, 5.0, 20.0]
    assert found["A flash-marks"]["x"] == [1024]  # launch-bound
    assert not any(y is not None and y <= 0 for trace in found.values() for y in trace["y"])
    ratio = lines(comparison_figure.ratio(pair, ["flash"]))
    assert ratio["B flash-line"]["y"] == [1.0, 1.0, 1.0] and "B standard-line" not in ratio


def test_the_memory_chart_holds_the_bytes_and_the_ratio_has_no_band():
    after = peaks(BEFORE.measurements, {"flash": 2}, name="b")
    drawn = comparison_figure.charts((SMALL, after), ["flash"], MEMORY)
    found = lines(drawn["memory"])
    assert found["B flash-line"]["y"] == [2000 * seq for seq in SWEEP.seqs] and found["B flash-band"]["x"] == [None]
    axis = drawn["memory"]["layout"]["yaxis"]
    assert (
        axis["ticktext"][0].endswith("MiB")
        and axis["tickvals"][0] <= 2048 * 1000
        and axis["tickvals"][-1] >= 2000 * 8192
    )
    ratio = lines(drawn["memory-ratio"])
    assert ratio["B flash-line"]["y"] == [2.0, 2.0, 2.0] and "needs" not in ratio["B flash-line"]["hovertext"][0]
    assert "2.0× more" in ratio["B flash-line"]["hovertext"][0] and "MiB" in ratio["B flash-line"]["hovertext"][0]
    empty = comparison_figure.charts((BEFORE, BEFORE), ["flash"], MEMORY)
    assert "no memory was measured" in json.dumps(empty["memory"]) and not empty["memory-ratio"]["data"]


def test_a_chart_is_strict_json_in_tokens_with_the_marks_of_recorded_runs():
    hostile = replace(F25, id="b", device=replace(H200, name="<img src=x onerror=alert(1)>"))
    every = [comparison_figure.charts((F25, hostile), ["standard", "flash"], of) for of in comparison.QUANTITIES]
    for figure in (figure for charts in every for figure in charts.values()):
        text = json.dumps(figure, allow_nan=False)
        assert "<img" not in text and "&lt;img" in text and "A: recorded on NVIDIA H200, 2026-11-30" in text
        assert all(token in TOKENS["light"] for token in text.split('"') if token.startswith("var("))


def test_ratios_far_apart_are_drawn_on_a_log_axis():
    near = comparison_figure.ratio((BEFORE, run(*(times(m, 1.1) for m in BEFORE.measurements), name="b")), ["flash"])
    far = comparison_figure.ratio((BEFORE, run(*(times(m, 9) for m in BEFORE.measurements), name="b")), ["flash"])
    assert "type" not in near["layout"]["yaxis"] and far["layout"]["yaxis"]["type"] == "log"
    low, high = near["layout"]["yaxis"]["range"]
    assert low < 1 < 1.1 < high


def test_a_comparison_opens_with_the_paths_that_all_have():
    other = replace(BEFORE, sweep=replace(SWEEP, paths=("flash", "sdpa-math")))
    assert comparison_figure.story((BEFORE, BEFORE)) == ["standard", "flash"]
    assert comparison_figure.story((BEFORE, other)) == ["flash"]
    assert comparison_figure.paths_of((BEFORE, other)) == ["standard", "flash", "sdpa-math"]
    assert len(comparison_figure.DASHES) == comparison.MOST
