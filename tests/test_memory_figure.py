"""The memory chart: curves, capacity and measured points against the arithmetic that they stand for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from attnlab import cost, memory_plan
from attnlab.measurement import Measurement
from attnlab.memory_figure import checked, deviation_sentence, figure
from attnlab.problem import AttentionProblem

GIB = 2**30
PROBLEM = AttentionProblem(batch=4, seq_q=16_384, heads=32, head_dim=128)
SEQS = (1024, 8192, 131_072)
MARK = "recorded on NVIDIA H200, 2026-11-30"


def point(path, seq, factor=1.0, **more):
    problem = PROBLEM.at_seq(seq)
    peak_bytes = round(cost.predicted_peak_bytes(problem, path) / factor)
    return Measurement.of(problem, path, **{"status": "ok", "peak_bytes": peak_bytes, **more})


def trace(drawn, uid):
    (found,) = [trace for trace in drawn["data"] if trace["uid"] == uid]
    return found


def test_the_curves_are_the_totals_and_the_capacity_is_a_line():
    drawn = figure(PROBLEM, SEQS, 80 * GIB, "A100: 80 GiB")
    for path in ("standard", "flash"):
        assert trace(drawn, f"{path}-plan")["y"] == [memory_plan.total_bytes(PROBLEM.at_seq(seq), path) for seq in SEQS]
    (line,) = drawn["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 80 * GIB
    said = [a["text"] for a in drawn["layout"]["annotations"]]
    assert said == ["A100: 80 GiB", "<b>12,857</b>"]  # flash ends outside the picture


def test_a_measured_point_stands_on_its_inputs():
    (found,) = checked([point("flash", 8192, factor=1.25)], "cuda")
    assert found.deviation == pytest.approx(0.25, abs=1e-6)
    inputs = cost.input_bytes(PROBLEM.at_seq(8192))
    assert found.total_bytes == found.measurement.peak_bytes + inputs
    drawn = figure(PROBLEM, SEQS, 80 * GIB, "A100", [found], mark=MARK)
    measured = trace(drawn, "flash-measured")
    assert (measured["x"], measured["y"]) == ([8192], [found.total_bytes])
    assert "25 % off" in measured["hovertext"][0] and MARK in measured["hovertext"][0]
    assert MARK in drawn["layout"]["xaxis"]["title"]["text"]
    json.dumps(drawn, allow_nan=False)


def test_only_what_was_measured_is_checked():
    lost = point("standard", 8192, status="oom", peak_bytes=None)
    assert checked([lost, replace(point("flash", 1024), peak_bytes=0)], "cuda") == []


def test_the_furthest_off_of_each_path_in_words():
    points = checked([point("standard", 1024, 0.75), point("standard", 8192), point("flash", 8192)], "cuda")
    assert deviation_sentence(points) == "Furthest off, for each path: standard -25 % at 1,024; flash exact."
    assert deviation_sentence([]).startswith("Nothing is measured yet")
