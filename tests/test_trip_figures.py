import json

import pytest
from test_trip import DEFAULT, timed

from attnlab import cost, trip
from attnlab.problem import AttentionProblem
from attnlab.trip_figures import moved, three_digits
from attnlab.trip_figures import timed as timed_figure


def by_path(figure, path):
    return [trace for trace in figure["data"] if trace["y"] == [path]]


def ends(figure):
    return {note["y"]: note["text"] for note in figure["layout"]["annotations"] if "showarrow" in note and "y" in note}


@pytest.mark.parametrize("causal", [False, True])
def test_the_bars_are_the_bytes(causal):
    problem = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128, causal=causal)
    figure = moved(problem)
    assert [t["x"][0] * 1e9 for t in by_path(figure, "standard")] == [s.moved_bytes for s in trip.operations(problem)]
    assert [t["x"][0] * 1e9 for t in by_path(figure, "flash")] == [cost.min_bytes(problem)]
    assert trip.decimal_size(trip.standard_bytes(problem)) in ends(figure)["standard"]
    json.dumps(figure, allow_nan=False)


def test_small_problems_are_told_in_megabytes():
    figure = moved(AttentionProblem(batch=1, seq_q=512, heads=8, head_dim=64))
    assert figure["layout"]["xaxis"]["title"]["text"] == "MB"
    assert sum(t["x"][0] for t in by_path(figure, "standard")) == pytest.approx(
        trip.standard_bytes(AttentionProblem(batch=1, seq_q=512, heads=8, head_dim=64)) / 1e6
    )


def test_before_a_measurement_the_times_are_bytes_at_bandwidth_and_named_so():
    figure = timed_figure(DEFAULT, {}, {}, 4.8, "")
    assert "not measured: bytes at 4.8 TB/s" in figure["layout"]["title"]["text"]
    total = sum(t["x"][0] for t in by_path(figure, "standard"))
    assert total == pytest.approx(trip.standard_bytes(DEFAULT) / 4.8e9)
    assert all(t["marker"]["opacity"] < 1 for t in figure["data"]) and "faster" not in json.dumps(figure)


def test_without_a_bandwidth_nothing_is_drawn():
    figure = timed_figure(DEFAULT, {}, {}, None, "")
    assert all(t["x"] == [None] for t in figure["data"])
    assert "press Measure the kernels" in json.dumps(figure)


def test_measured_times_stand_as_measured_with_where():
    standard = {what: timed(what, ms) for what, ms in (("QKᵀ", 2.0), ("scale", 1.0), ("softmax", 3.0), ("AV", 2.0))}
    figure = timed_figure(
        DEFAULT, standard, {"kernel": timed("kernel", 1.0)}, 4.8, "recorded on NVIDIA H200, 2026-11-30"
    )
    assert [t["x"][0] for t in by_path(figure, "standard")] == [2.0, 1.0, 3.0, 2.0]
    assert "8.00 ms" in ends(figure)["standard"] and "1.00 ms · 8.0× faster" in ends(figure)["flash"]
    assert "measured, recorded on NVIDIA H200, 2026-11-30" in figure["layout"]["title"]["text"]
    assert "a_kernel" in figure["data"][0]["hovertext"][0]
    slower = timed_figure(DEFAULT, standard, {"kernel": timed("kernel", 16.0)}, None, "")
    assert "2.0× slower" in ends(slower)["flash"]


def test_a_standard_path_that_ran_out_of_memory_is_said_beside_the_time_of_flash():
    figure = timed_figure(DEFAULT, {}, {"kernel": timed("kernel", 1.0)}, 4.8, "NVIDIA H200", "out of memory")
    assert [t["x"] for t in by_path(figure, "flash")] == [[1.0]]
    assert all(t["x"] == [None] for t in by_path(figure, "standard"))
    assert "out of memory" in ends(figure)["standard"] and "faster" not in json.dumps(figure)


@pytest.mark.parametrize(("value", "words"), [(5.1, "5.10"), (0.012345, "0.0123"), (99.96, "100"), (1234.5, "1,234")])
def test_a_segment_is_told_in_three_digits(value, words):
    assert three_digits(value) == words
