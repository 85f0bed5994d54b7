import json
from math import log10

import pytest
from looks import answer, exactness, look, point
from samples import H200

from attnlab.exactness_figure import MEASURES, ROUNDOFF_POWER, figure
from attnlab.problem import DTYPE_BYTES


def trace(drawn, uid):
    (found,) = [trace for trace in drawn["data"] if trace["uid"] == uid]
    return found


def test_one_line_for_each_path_and_dtype_told_apart_by_dash():
    drawn = figure([exactness(), exactness({"standard": 3e-7, "flash": 2e-7}, dtype="float32")])
    assert trace(drawn, "flash-bfloat16-line")["y"] == [2.2e-3, 2.2e-3]
    assert trace(drawn, "flash-float32-line")["y"] == [2e-7, 2e-7]
    dashes = {trace(drawn, f"flash-{dtype}-line")["line"]["dash"] for dtype in ("bfloat16", "float32")}
    assert len(dashes) == 2
    assert {t["name"] for t in drawn["data"] if t["showlegend"]} == {"standard", "flash", "bfloat16", "float32"}
    json.dumps(drawn, allow_nan=False)


def test_the_axes_are_logarithmic_and_hold_everything():
    drawn = figure([exactness()])
    axes = drawn["layout"]["xaxis"], drawn["layout"]["yaxis"]
    assert {axis["type"] for axis in axes} == {"log"}
    low, high = axes[1]["range"]
    assert all(low <= log10(y) <= high for t in drawn["data"] for y in t["y"] if y and t.get("yaxis") != "y2")


def test_the_unit_roundoff_of_each_dtype_is_a_named_line():
    drawn = figure([exactness(dtype=dtype) for dtype in DTYPE_BYTES])
    assert [shape["y0"] for shape in drawn["layout"]["shapes"]] == [2**-8, 2**-11, 2**-24]
    said = " ".join(note["text"] for note in drawn["layout"]["annotations"])
    assert "bfloat16 unit roundoff 2⁻⁸" in said and "2⁻²⁴" in said


def test_the_unit_roundoffs_are_those_of_the_dtypes():
    torch = pytest.importorskip("torch")
    for dtype, power in ROUNDOFF_POWER.items():
        assert 2.0 ** (power + 1) == torch.finfo(getattr(torch, dtype)).eps


def test_a_failure_is_a_cross_that_no_line_touches():
    run = look(
        point("flash", 256, answer(2e-3)),
        point("flash", 512, answer(0.4, "fail")),
        point("flash", 1024, answer(None, "fail")),
        point("flash", 2048, answer(2e-3)),
        seqs=(256, 512, 1024, 2048), paths=("flash",),
    )  # fmt: skip
    drawn = figure([run])
    line, cross, lost = (trace(drawn, f"flash-bfloat16-{kind}") for kind in ("line", "fail", "nonfinite"))
    assert line["y"] == [2e-3, None, None, 2e-3] and line["connectgaps"] is False
    assert (cross["x"], cross["y"], cross["mode"], cross["marker"]["symbol"]) == ([512], [0.4], "markers+text", "x")
    assert (lost["x"], lost["yaxis"]) == ([1024], "y2") and "not finite" in lost["text"][0]
    assert "FAIL" in cross["hovertext"][0]


def test_what_is_not_above_zero_is_not_drawn():
    run = look(point("flash", 512, answer(0.0)), seqs=(512,), paths=("flash",))
    for measure in MEASURES:
        assert not any(y and y <= 0 for t in figure([run], "O", measure)["data"] for y in t["y"])
        assert trace(figure([run], "O", measure), "flash-bfloat16-line")["y"] == [None]


def test_an_unsupported_path_is_absent_and_an_empty_chart_says_so():
    run = look(point("flash", 512, status="unsupported", reason="needs a GPU"), seqs=(512,), paths=("flash",))
    assert all(y is None for t in figure([run])["data"] for y in t["y"])
    assert "not measured" in [note["text"] for note in figure([look()])["layout"]["annotations"]]
    waiting = figure([look(state="running")])["layout"]["annotations"]
    assert "waiting for the first point" in [note["text"] for note in waiting]


def test_traces_stay_the_same_from_the_first_moment_on():
    assert [t["uid"] for t in figure([look()])["data"]] == [t["uid"] for t in figure([exactness()])["data"]]


def test_a_recorded_run_is_marked():
    title = figure([exactness(recorded=True, device=H200)])["layout"]["xaxis"]["title"]["text"]
    assert "recorded on NVIDIA H200, 2026-11-30" in title


def test_runs_of_different_lengths_and_paths_share_the_axis():
    """Recorded ones may."""
    other = look(point("sdpa-math", 2048, answer(1e-3)), seqs=(2048,), paths=("sdpa-math",), dtype="float16")
    drawn = figure([exactness(), other])
    assert drawn["layout"]["xaxis"]["tickvals"] == [512, 1024, 2048]
    assert trace(drawn, "sdpa-math-float16-line")["showlegend"]
