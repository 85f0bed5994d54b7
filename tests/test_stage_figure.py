"""Charts for a hall: labels at the ends of lines that share no place, thick lines, only what is revealed, both scales."""

import json
from copy import deepcopy
from dataclasses import replace
from itertools import combinations, pairwise
from math import log10

import pytest

from attnlab import (
    chart_style,
    estimate,
    exactness_figure,
    figures,
    online_softmax,
    roofline_figure,
    softmax_figure,
    trip_figures,
)
from attnlab.export import recorded_runs
from attnlab.stage_figure import BEYOND, LABEL_PX, LINE_PX, PLOT_PX, SMALL_PX, staged
from attnlab.sweep import TIME

RECORDED = recorded_runs()[0]
TIMED = {name: run for name, run in RECORDED.items() if run.sweep.task == TIME}
H200 = RECORDED["h200"]
DRAWN = {"latency": figures.latency, "memory": figures.memory, "speedup": figures.speedup}


def labels(figure):
    """Path → its label."""
    found = [a for a in figure["layout"]["annotations"] if a.get("name", "").startswith("label-")]
    return {a["name"].removeprefix("label-"): a for a in found}


def traces(figure, path):
    return [trace for trace in figure["data"] if trace.get("legendgroup") == path]


def height(label):
    smaller = label["font"]["size"] / LABEL_PX
    return smaller * (LABEL_PX * 1.15 + SMALL_PX * 1.2 * label["text"].count("<br>")) / PLOT_PX


def share(axis, value):
    low, high = axis["range"]
    return ((log10(value) if axis.get("type") == "log" else value) - low) / (high - low)


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("chart", DRAWN)
@pytest.mark.parametrize("name", TIMED)
def test_labels_share_no_place_and_stay_with_their_chart(name, chart, scale):
    run = TIMED[name]
    before = DRAWN[chart](run)
    untouched = deepcopy(before)
    figure = staged(before, scale=scale)
    assert before == untouched, "a pure function"
    json.dumps(figure, allow_nan=False)
    assert not figure["layout"]["showlegend"] and "legend" not in figure["layout"]
    assert not any(trace.get("showlegend") for trace in figure["data"])
    found = labels(figure)
    for label in found.values():
        assert 0 <= label["x"] <= 1.05
    for a, b in combinations(found.values(), 2):
        if a["x"] == b["x"]:
            assert abs(a["y"] - b["y"]) >= (height(a) + height(b)) / 2 - 1e-9
    for label in found.values():
        bottom, top = label["y"] - height(label) / 2, label["y"] + height(label) / 2
        assert bottom >= -BEYOND - 1e-6 and top <= 1 + BEYOND + 1e-6


def test_a_label_stands_at_the_end_of_its_line_in_its_colour():
    figure = staged(figures.latency(H200), paths=["flash"])
    (label,) = labels(figure).values()
    last = H200.sweep.seqs[-1]
    assert label["text"].startswith("<b>flash</b>") and label["font"]["color"] == chart_style.color("flash")
    assert 0 < label["x"] - share(figure["layout"]["xaxis"], last) < 0.05
    ms = H200.get("flash", last).device_ms
    assert label["y"] == pytest.approx(share(figure["layout"]["yaxis"], ms), abs=0.02)


def test_a_line_that_ends_out_of_memory_is_named_at_the_cross_with_the_words():
    figure = staged(figures.memory(H200), paths=["standard", "flash"])
    label = labels(figure)["standard"]
    assert "out of memory" in label["text"]
    assert label["x"] == pytest.approx(share(figure["layout"]["xaxis"], H200.sweep.seqs[-1]), abs=0.05)
    (marks,) = [trace for trace in traces(figure, "standard") if trace["uid"] == "standard-oom"]
    assert marks["x"] == [H200.sweep.seqs[-1]] and not any(marks["text"]), "the words stand once"


def test_only_what_is_revealed_is_drawn_and_the_axes_stay_when_more_comes():
    one = staged(figures.latency(H200), paths=["standard"])
    two = staged(figures.latency(H200), paths=["standard", "flash-attn-2"])
    assert set(labels(one)) == {"standard"} and set(labels(two)) == {"standard", "flash-attn-2"}
    for figure, shown in ((one, {"standard"}), (two, {"standard", "flash-attn-2"})):
        seen = {trace["legendgroup"] for trace in figure["data"] if trace.get("visible") is True}
        assert seen == shown
    for axis in ("xaxis", "yaxis"):
        assert one["layout"][axis]["range"] == two["layout"][axis]["range"]


def test_lines_are_thick_and_what_a_hall_need_not_see_is_gone():
    figure = staged(figures.latency(H200))
    plain = figures.latency(H200)
    lines = [trace for trace in figure["data"] if trace["uid"].endswith("-line")]
    assert {trace["line"]["width"] for trace in lines} == {LINE_PX} and LINE_PX > chart_style.LINE_PX
    assert not any(trace["visible"] for trace in figure["data"] if trace["uid"].endswith("-growth"))
    assert any(trace["visible"] for trace in plain["data"] if trace["uid"].endswith("-growth"))
    assert figure["layout"]["meta"]["grows_to"] > 1.6


def test_linear_shows_the_square_and_log_the_straight_line():
    log, linear = (staged(figures.memory(H200), scale=scale) for scale in ("log", "linear"))
    assert [log["layout"][axis]["type"] for axis in ("xaxis", "yaxis")] == ["log", "log"]
    axes = linear["layout"]
    assert [axes[axis]["type"] for axis in ("xaxis", "yaxis")] == ["linear", "linear"]
    assert axes["yaxis"]["range"][0] == 0 and axes["yaxis"]["ticktext"][0] == "0"
    assert 2 < len(axes["yaxis"]["tickvals"]) <= 6
    assert axes["xaxis"]["range"][1] >= H200.sweep.seqs[-1]
    standard = [H200.get("standard", seq).peak_bytes for seq in (4096, 8192, 16384)]
    shares = [share(axes["yaxis"], value) for value in standard]
    assert shares[1] / shares[0] == pytest.approx(4, rel=0.05) and shares[2] / shares[1] == pytest.approx(4, rel=0.05)
    assert log["layout"]["uirevision"] != linear["layout"]["uirevision"], "a zoom is of one scale"


def test_ticks_of_a_linear_axis_lie_apart():
    figure = staged(figures.latency(H200), scale="linear")
    ticks = figure["layout"]["xaxis"]["tickvals"]
    assert len(ticks) == len(figure["layout"]["xaxis"]["ticktext"]) >= 3
    assert all(
        share(figure["layout"]["xaxis"], b) - share(figure["layout"]["xaxis"], a) > 0.08 for a, b in pairwise(ticks)
    )


def test_a_reference_line_far_above_all_points_is_left_out_where_the_axis_is_linear():
    capacity = H200.device.total_bytes
    without = replace(H200, sweep=replace(H200.sweep, seqs=H200.sweep.seqs[:5]), measurements=tuple(
        m for m in H200.measurements if m.seq <= H200.sweep.seqs[4]
    ))  # fmt: skip
    low, high = (staged(figures.memory(run), scale="linear", paths=["standard"]) for run in (without, H200))
    assert low["layout"]["shapes"] == [] and [shape["y0"] for shape in high["layout"]["shapes"]] == [capacity]
    assert low["layout"]["yaxis"]["range"][1] < capacity
    assert [s["y0"] for s in staged(figures.memory(without))["layout"]["shapes"]] == [capacity]


def test_an_empty_run_is_a_frame_without_labels():
    empty = replace(H200, measurements=(), state="running", recorded=False)
    for draw in DRAWN.values():
        for scale in ("log", "linear"):
            figure = staged(draw(empty), scale=scale)
            assert labels(figure) == {} and "waiting for the first point" in str(figure["layout"]["annotations"])


def test_the_charts_of_other_pages_are_staged_too():
    problem = H200.sweep.at(4096)
    assert staged(trip_figures.moved(problem))["layout"]["barmode"] == "stack"
    exact = staged(exactness_figure.figure([RECORDED["h200-exactness-bfloat16"]]), paths=["standard", "flash"])
    assert set(labels(exact)) == {"standard", "flash"}
    roofs = estimate.roofs(H200.device, "bfloat16")
    standings = [s for m in H200.measurements if (s := estimate.standing(m, roofs))]
    figure = roofline_figure.roofline(roofs, standings, [H200.sweep.at(seq) for seq in H200.sweep.seqs], H200.mark)
    roofline = staged(figure, paths=["standard", "flash"], below=True)
    assert set(labels(roofline)) == {"standard", "flash"} and H200.mark in roofline["layout"]["xaxis"]["title"]["text"]


def test_softmax_shows_how_the_second_block_shrinks_the_first():
    blocks = online_softmax.trace(online_softmax.SCORES, online_softmax.VALUES, online_softmax.BLOCK)
    figure = softmax_figure.figure(blocks, 2)
    bars = {trace["uid"]: trace["y"] for trace in figure["data"]}
    assert bars["new-0"] == pytest.approx(list(blocks[0].p)) == bars["old-1"]
    assert bars["kept-1"] == pytest.approx([p * blocks[1].rescale for p in blocks[0].p])
    assert sum(bars["kept-1"]) + sum(blocks[1].p) == pytest.approx(blocks[1].l)
    half = {trace["uid"]: trace["y"] for trace in softmax_figure.figure(blocks, 1)["data"]}
    assert half["new-0"] == bars["new-0"] and half["new-1"] == half["kept-1"] == [None]
