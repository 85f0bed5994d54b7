"""The roofline's charts: every height against the arithmetic that it stands for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from samples import H200

from attnlab.estimate import MEASURED, Roof, estimate, intensity, roofs, standing
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.roofline_figure import ARM, floors, roofline

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)
PROBLEMS = [PROBLEM.at_seq(seq) for seq in (1024, 4096)]
ROOFS = roofs(replace(H200, matmul_tflops=(("bfloat16", 779.0),), copy_tbs=4.1), "bfloat16")
MARK = "recorded on NVIDIA H200, 2026-11-30"


def points(*times):
    return [standing(Measurement.of(PROBLEM, path, "ok", device_ms=ms), ROOFS) for path, ms in times]


def trace(figure, uid):
    (found,) = [trace for trace in figure["data"] if trace["uid"] == uid]
    return found


def words(figure):
    return " ".join(a["text"] for a in figure["layout"]["annotations"])


def test_the_roof_is_two_straight_lines_that_meet_at_the_ridge():
    figure = roofline(ROOFS, points(("flash", 1.492)), PROBLEMS, "")
    sheet, measured = trace(figure, "roof-data sheet"), trace(figure, "roof-measured")
    assert sheet["x"][1] == pytest.approx(989.5 / 4.8) and sheet["y"][1:] == [989.5, 989.5]
    assert sheet["y"][0] == pytest.approx(4.8 * sheet["x"][0]) and measured["y"][2] == 779
    assert (sheet["line"]["dash"], measured["line"]["dash"]) == ("solid", "dash")
    assert "dense peak, data sheet: 989.5 TFLOP/s" in words(figure) and "measured: 779 TFLOP/s" in words(figure)
    assert "4.8 TB/s" in words(figure)


@pytest.mark.parametrize("ridge", [5.0, 12.0, 200.0])
def test_the_words_beside_the_arm_have_room_left_of_the_ridge(ridge):
    roof = Roof(peak_tflops=0.2, bandwidth_tbs=0.2 / ridge, device="a CPU", source=MEASURED)
    figure = roofline([roof], [], [AttentionProblem(batch=1, seq_q=512, heads=8, head_dim=64, dtype="float32")], "")
    low, _ = figure["layout"]["xaxis"]["range"]
    assert 10**low <= ridge / ARM


def test_a_point_stands_at_its_intensity_and_rate():
    standings = points(("standard", 11.9), ("flash", 1.492))
    figure = roofline(ROOFS, standings, PROBLEMS, MARK)
    for s in standings:
        drawn = trace(figure, f"{s.measurement.path}-points")
        assert drawn["x"] == [intensity(PROBLEM, s.measurement.path)] and drawn["y"] == [s.tflops]
        assert "% reached" in drawn["hovertext"][0]
    assert MARK in figure["layout"]["xaxis"]["title"]["text"]
    assert all(t["x"] == [None] for t in figure["data"] if t["uid"].endswith("-above"))


def test_a_point_above_the_roof_is_drawn_where_it_is_with_its_share():
    (s,) = points(("flash", 0.5))
    figure = roofline(ROOFS, [s], PROBLEMS, "")
    flag = trace(figure, "flash-above")
    assert flag["y"] == [s.tflops] and s.tflops > 989.5 and flag["text"] == ["222 %"]
    assert 10 ** figure["layout"]["yaxis"]["range"][1] > s.tflops
    assert "above the roof" in flag["hovertext"][0]


def test_floors_of_both_paths_and_the_measured_times():
    figure = floors(ROOFS[0], points(("flash", 1.492)), PROBLEMS, "")
    for path in ("standard", "flash"):
        line = trace(figure, f"{path}-floor")
        assert line["x"] == [1024, 4096] and line["y"] == [estimate(p, path, ROOFS[0]).ms for p in PROBLEMS]
    assert trace(figure, "flash-times")["y"] == [1.492]


def test_without_a_roof_none_is_drawn():
    figure = roofline((), [], PROBLEMS, "")
    assert not figure["data"] and "no roof is known" in words(figure)
    assert not floors(None, [], PROBLEMS[:1], "")["data"]


def test_a_recorded_run_opens_with_the_two_paths_of_the_story():
    figure = roofline(ROOFS, points(("standard", 11.9), ("flash", 1.5), ("sdpa-flash", 3.0)), PROBLEMS, MARK)
    assert (
        trace(figure, "sdpa-flash-points")["visible"] == "legendonly"
        and trace(figure, "flash-points")["visible"] is True
    )


def test_figures_are_json():
    standings = points(("standard", 11.9), ("flash", 0.5))
    for figure in (roofline(ROOFS, standings, PROBLEMS, MARK), floors(ROOFS[0], standings, PROBLEMS, MARK)):
        json.dumps(figure, allow_nan=False)
