import json
import re
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from samples import CPU, H200

from attnlab import chart_style, figures
from attnlab.measurement import STATUSES, Measurement
from attnlab.paths import PATHS
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

PROBLEM = AttentionProblem(batch=4, seq_q=131_072, heads=32, head_dim=128)
CHARTS = (figures.latency, figures.memory, figures.speedup, figures.efficiency)


def point(path, seq, status="ok", device_ms=None, **more):
    return Measurement(problem=PROBLEM.at_seq(seq), path=path, status=status, device_ms=device_ms, **more)


def run_of(*points, seqs=(512, 1024, 2048, 4096), paths=("standard", "flash"), device=H200, **more):
    more = {"state": "running", "id": "r1", "created": "2026-11-30T10:00:00Z", **more}
    sweep = Sweep(problem=PROBLEM, seqs=seqs, paths=paths)
    return Run(sweep=sweep, device=device, measurements=points, **more)


def trace(figure, uid):
    return next(trace for trace in figure["data"] if trace["uid"] == uid)


def texts(figure):
    """Everything a viewer can read on a chart without touching it."""
    layout = figure["layout"]
    said = [
        layout["title"]["text"],
        layout["xaxis"]["title"]["text"],
        *(note["text"] for note in layout["annotations"]),
    ]
    for trace in figure["data"]:
        said += [trace.get("name", ""), *trace.get("text", [])]
    return "\n".join(said)


MIXED = run_of(
    point("standard", 512, device_ms=0.26, device_ms_low=0.25, device_ms_high=0.28, peak_bytes=160 << 20),
    point("standard", 1024, status="fault", reason="<illegal> access"),
    point("standard", 2048, device_ms=2.69, peak_bytes=2176 << 20),
    point("standard", 4096, status="oom", reason="asks for 256 GiB"),
    point(
        "flash", 512, device_ms=0.07, launch_bound=True, device_ms_low=0.06, device_ms_high=0.08, peak_bytes=16 << 20
    ),
    point("flash", 1024, device_ms=0.13, peak_bytes=32 << 20),
    point("flash", 2048, status="suspect", device_ms=0.001, peak_bytes=65 << 20, reason="above the peak of the device"),
    point("flash", 4096, status="skipped", predicted_ms=9.5),
)


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize(
    "run",
    [
        MIXED,
        run_of(),
        run_of(device=None, state="queued"),
        replace(MIXED, device=CPU, recorded=True),
        run_of(point("flash", 512, device_ms=1.0), paths=("flash",)),
        run_of(seqs=(1000,)),
        run_of(*(point("standard", 512 << i, status=status) for i, status in enumerate(STATUSES[1:5]))),
        run_of(*(point("standard", 512 << i, status="unreached") for i in range(4)), device=None, state="failed"),
    ],
    ids=[
        "mixed",
        "empty",
        "no device",
        "recorded CPU",
        "flash alone",
        "one length",
        "no number at all",
        "none reached",
    ],
)
def test_plotly_and_json_accept_every_chart(chart, run):
    figure = chart(run)
    json.dumps(figure, allow_nan=False)
    go.Figure(figure)


def test_a_line_stops_where_a_number_is_missing():
    """F25: no 0, no NaN, no segment across a gap; what has no number is a mark in words."""
    figure = figures.latency(MIXED)
    line = trace(figure, "standard-line")
    assert line["x"] == [512, 1024, 2048, 4096]
    assert line["y"] == [0.26, None, 2.69, None]
    assert line["connectgaps"] is False
    edge = trace(figure, "standard-edge")
    assert edge["x"] == [1024, 4096]
    assert [text.strip() for text in edge["text"]] == ["fault", "out of memory"]
    assert [text.strip() for text in trace(figure, "flash-edge")["text"]] == ["skipped"]
    numbers = [y for chart in CHARTS for t in chart(MIXED)["data"] for y in t["y"] if y is not None]
    assert min(numbers) > 0


def test_what_nobody_began_stands_at_the_edge_in_words_and_says_why_when_pointed_at():
    points = [point("flash", seq, status="unreached", reason="the worker cannot start: why") for seq in (512, 1024)]
    figure = figures.latency(run_of(*points, state="failed"))
    edge = trace(figure, "flash-edge")
    assert [text.strip() for text in edge["text"]] == ["not reached", ""]
    assert all("the worker cannot start: why" in text for text in edge["hovertext"])
    assert [note["text"] for note in figure["layout"]["annotations"]].count("no point was reached") == 1


def test_out_of_memory_and_skipped_of_f25():
    """F25: standard 0.12 ms at 1,024, out of memory at 65,536, skipped at 131,072; flash has all three."""
    run = run_of(
        point("standard", 1024, device_ms=0.12),
        point("standard", 65_536, status="oom"),
        point("standard", 131_072, status="skipped"),
        *(point("flash", seq, device_ms=seq / 1e4) for seq in (1024, 65_536, 131_072)),
        seqs=(1024, 65_536, 131_072),
    )
    figure = figures.latency(run)
    assert trace(figure, "standard-line")["y"] == [0.12, None, None]
    assert trace(figure, "standard-edge")["x"] == [65_536, 131_072]
    assert trace(figures.speedup(run), "flash-line")["y"] == [pytest.approx(0.12 / 0.1024), None, None]


def test_a_suspect_number_is_shown_hollow_and_counts_nowhere():
    figure = figures.latency(MIXED)
    assert trace(figure, "flash-line")["y"] == [0.07, 0.13, None, None]
    marks = trace(figure, "flash-marks")
    assert (marks["x"], marks["y"]) == ([512, 2048], [0.07, 0.001])
    assert marks["text"][1].strip() == "suspect"
    assert marks["marker"]["symbol"] == ["circle", "triangle-up-open"]
    assert "above the peak" in marks["hovertext"][1]
    assert trace(figures.speedup(MIXED), "flash-line")["y"] == [pytest.approx(0.26 / 0.07), None, None, None]


def test_launch_bound_is_hollow_unnamed_and_explained():
    latency, speedup = figures.latency(MIXED), figures.speedup(MIXED)
    assert trace(latency, "flash-marks")["marker"]["color"][0] == "var(--attn-page)"
    assert "launch-bound" in texts(latency)
    assert trace(speedup, "flash-marks")["x"] == [512]
    assert "×" not in "".join(trace(speedup, "flash-line")["text"]), "a launch-bound ratio was announced"
    settled = run_of(point("standard", 512, device_ms=1.0), point("flash", 512, device_ms=0.5))
    assert "launch-bound" not in texts(figures.latency(settled))
    assert trace(figures.latency(settled), "flash-marks")["x"] == [None]


def test_the_interval_is_a_closed_band_for_each_stretch():
    points = [
        point("flash", seq, device_ms=ms, device_ms_low=ms - 0.1, device_ms_high=ms + 0.1)
        for seq, ms in ((512, 1.0), (1024, 2.0), (4096, 4.0))
    ]
    band = trace(figures.latency(run_of(*points)), "flash-band")
    assert band["x"] == [512, 1024, 1024, 512, None, 4096, 4096, None]
    assert band["y"] == [0.9, 1.9, 2.1, 1.1, None, 3.9, 4.1, None]
    assert (band["fill"], band["hoverinfo"], band["legendgroup"]) == ("toself", "skip", "flash")


def test_the_band_of_a_speedup_comes_from_both_intervals():
    run = run_of(
        point("standard", 512, device_ms=8.0, device_ms_low=6.0, device_ms_high=9.0),
        point("flash", 512, device_ms=2.0, device_ms_low=1.5, device_ms_high=3.0),
    )
    figure = figures.speedup(run)
    assert trace(figure, "flash-band")["y"] == [6.0 / 3.0, 9.0 / 1.5, None]
    assert trace(figure, "flash-line")["y"][0] == 4.0
    assert trace(figure, "flash-line")["text"][0] == "<b>4.0×</b>"
    assert figure["layout"]["shapes"][0]["y0"] == 1


def test_a_wide_interval_does_not_flatten_the_line_of_a_speedup():
    run = run_of(
        point("standard", 512, device_ms=4.0, device_ms_low=1.0, device_ms_high=30.0),
        point("flash", 512, device_ms=1.0, device_ms_low=0.1, device_ms_high=2.0),
    )
    figure = figures.speedup(run)
    assert max(y for y in trace(figure, "flash-band")["y"] if y) == 300
    assert 4 < figure["layout"]["yaxis"]["autorangeoptions"]["clipmax"] < 10


def test_labels_leave_each_other_room():
    ratios = [1.0, 2.0, 3.0, 4.0, 5.0, 5.1, 6.0, 7.0, 5.0]
    seqs = tuple(128 << i for i in range(9))
    points = [point("standard", seq, device_ms=ratio) for seq, ratio in zip(seqs, ratios, strict=True)]
    run = run_of(*points, *(point("flash", seq, device_ms=1.0) for seq in seqs), seqs=seqs)
    said = trace(figures.speedup(run), "flash-line")["text"]
    assert "<b>7.0×</b>" in said and said[-1] == "<b>5.0×</b>", "the peak and the last are always said"
    assert said[4:6] == ["", "<b>5.1×</b>"], "5.0 and 5.1 side by side would lie on each other"


@pytest.mark.parametrize(("ratios", "sides", "words"), [
    ([1.0, 2.0, 3.0, 4.0, 5.0], ["top center"] * 5, "left"),
    ([50.0, 20.0, 30.0, 3.0, 2.0], ["top center", "bottom center", "top center", "top right", "top center"], "right"),
    ([50.0, 40.0, 2.0, 3.0, 30.0], ["top center", "top right", "top right", "top center", "top center"], "right"),
    ([50.0, None, None, None, None], ["top center"] * 5, "left"),
])  # fmt: skip
def test_labels_and_words_lie_neither_on_the_line_nor_on_the_numbers_of_the_axis(ratios, sides, words):
    seqs = tuple(128 << i for i in range(5))
    points = [point("standard", seq, device_ms=ratio) for seq, ratio in zip(seqs, ratios, strict=True) if ratio]
    run = run_of(*points, *(point("flash", seq, device_ms=1.0) for seq in seqs), seqs=seqs)
    figure = figures.speedup(run)
    assert trace(figure, "flash-line")["textposition"] == sides
    said = next(note for note in figure["layout"]["annotations"] if note["text"] == "standard ÷ flash")
    assert said["xanchor"] == words


def test_memory_tells_a_tried_failure_from_a_predicted_one():
    run = run_of(
        point("standard", 512, device_ms=1.0, peak_bytes=100 << 30),
        point("standard", 1024, status="oom"),
        point("standard", 2048, status="oom", predicted_bytes=400 << 30),
    )
    figure = figures.memory(run)
    marks = trace(figure, "standard-oom")
    assert marks["x"] == [1024, 2048]
    assert marks["y"] == [H200.total_bytes, 400 << 30]
    assert marks["marker"]["symbol"] == ["x", "x-open"]
    assert [text.strip() for text in marks["text"]] == ["out of memory", "predicted out of memory"]
    assert "device memory: 140 GiB" in texts(figure)
    assert figure["layout"]["shapes"][0]["y0"] == H200.total_bytes
    assert trace(figures.latency(run), "standard-edge")["marker"]["symbol"] == ["x", "x-open"]
    assert "host memory: 8 GiB" in texts(figures.memory(replace(run, device=CPU)))


def test_memory_ticks_are_words():
    axis = figures.memory(MIXED)["layout"]["yaxis"]
    assert {"16 MiB", "4 GiB"} <= set(axis["ticktext"])
    assert dict(zip(axis["ticktext"], axis["tickvals"], strict=True))["4 GiB"] == 4 << 30


@pytest.mark.parametrize("chart", CHARTS)
def test_nothing_moves_while_points_arrive(chart):
    """The x axis, the traces and what resets a zoom are the same for no point, some points, and another run."""
    empty, full = chart(run_of()), chart(replace(MIXED, id="r2", state="done"))
    for axis in (empty["layout"]["xaxis"], full["layout"]["xaxis"]):
        assert axis["tickvals"] == [512, 1024, 2048, 4096]
        assert axis["ticktext"] == ["512", "1K", "2K", "4K"]
    assert empty["layout"]["xaxis"] == full["layout"]["xaxis"]
    assert empty["layout"]["margin"] == full["layout"]["margin"]
    assert empty["layout"]["uirevision"] == full["layout"]["uirevision"]
    assert [t["uid"] for t in empty["data"]] == [t["uid"] for t in full["data"]]
    assert all(t["x"] and t["y"] for t in empty["data"]), "Plotly drops an empty trace from its legend group"
    assert len({t["uid"] for t in full["data"]}) == len(full["data"])
    longer = chart(run_of(seqs=(512, 1024)))
    assert longer["layout"]["uirevision"] != full["layout"]["uirevision"]


def test_an_empty_chart_says_so():
    for chart in CHARTS:
        assert "waiting for the first point" in texts(chart(run_of()))
        assert "no points" in texts(chart(run_of(state="cancelled")))
        assert "waiting" not in texts(chart(MIXED))
    assert "needs standard and one more path" in texts(figures.speedup(run_of(paths=("flash",))))


def test_every_series_of_a_path_hides_with_it():
    for chart in CHARTS:
        for t in chart(MIXED)["data"]:
            assert t["legendgroup"] == t["uid"].rpartition("-")[0]
        assert [t["uid"] for t in chart(MIXED)["data"] if t.get("showlegend")] == [
            t["uid"] for t in chart(MIXED)["data"] if t["uid"].endswith("-line")
        ]


def test_the_legend_says_what_flash_is():
    run = run_of(point("flash", 512, device_ms=1.0, provider="flash-attn-4 4.0.0b36 · some_kernel"))
    assert trace(figures.latency(run), "flash-line")["name"] == "flash (flash-attn-4 4.0.0b36)"
    assert trace(figures.latency(run_of()), "flash-line")["name"] == "flash"


def test_a_recorded_run_is_marked_on_every_chart():
    recorded = replace(MIXED, recorded=True)
    for chart in CHARTS:
        assert "recorded on NVIDIA H200, 2026-11-30" in texts(chart(recorded))
        assert "recorded" not in texts(chart(MIXED))
        hover = [text for t in chart(recorded)["data"] for text in t.get("hovertext", []) if text]
        assert hover and all("recorded on NVIDIA H200, 2026-11-30" in text for text in hover)


def test_hover_says_how_a_number_was_obtained():
    one = point(
        "flash",
        1024,
        device_ms=1.731,
        device_ms_low=1.70,
        device_ms_high=1.75,
        samples=21,
        phase="refined",
        provider="flash-attn-4 4.0.0b36",
        clock="CUDA events",
    )
    hover = trace(figures.latency(run_of(one)), "flash-line")["hovertext"]
    assert hover == [
        "",
        "<b>flash</b> at 1,024<br>1.73 ms (1.70 ms to 1.75 ms), CUDA events<br>21 samples, refined pass<br>"
        "flash-attn-4 4.0.0b36",
        "",
        "",
    ]
    fault = trace(figures.latency(MIXED), "standard-edge")["hovertext"][0]
    assert fault == "<b>standard</b> at 1,024<br>fault<br>&lt;illegal&gt; access"


def test_the_cpu_says_host_time():
    assert "host ms" in texts(figures.latency(run_of(device=CPU)))
    assert "device ms" in texts(figures.latency(run_of()))


def test_every_colour_is_a_token_that_both_themes_resolve():
    figure = figures.latency(MIXED)
    assert trace(figure, "flash-line")["line"]["color"] == "var(--attn-flash)"
    assert [chart_style.TOKENS[theme]["var(--attn-flash)"] for theme in ("light", "dark")] == ["#0b62d6", "#4db8ff"]
    used = {token for chart in CHARTS for token in re.findall(r"var\(--[^)]*\)", json.dumps(chart(MIXED)))}
    assert len(used) > 4 and used <= set(chart_style.TOKENS["light"]) == set(chart_style.TOKENS["dark"])


@pytest.mark.parametrize(("slowest_ms", "ticks"), [(0.7, 3), (8.0, 3), (80.0, 4), (800.0, 5), (80_000.0, 5)])
def test_latency_asks_for_no_more_ticks_than_have_room(slowest_ms, ticks):
    run = run_of(point("standard", 512, device_ms=0.12), point("standard", 4096, device_ms=slowest_ms))
    assert figures.latency(run)["layout"]["yaxis"]["nticks"] == ticks


def test_every_uid_is_a_css_identifier_or_plotly_cannot_take_a_series_away():
    traces = [trace for draw in CHARTS for trace in draw(MIXED)["data"]]
    assert traces
    for trace in traces:
        assert re.fullmatch(r"[A-Za-z][\w-]*", trace["uid"]), trace["uid"]


def test_a_recorded_run_opens_with_standard_and_flash_and_the_others_a_click_away():
    run = run_of(*(point(path, 512, device_ms=1.0) for path in PATHS), paths=tuple(PATHS), seqs=(512,))
    for draw in CHARTS:
        assert all(t.get("visible", True) is True for t in draw(run)["data"])
        shown = {
            t["legendgroup"]: t["visible"] for t in draw(replace(run, recorded=True))["data"] if "legendgroup" in t
        }
        assert {path for path, visible in shown.items() if visible is True} <= {"standard", "flash"}
        assert shown["flash"] is True and shown["flash-attn-2"] == "legendonly"


# The three clocks


def clocked(path, seq, device_ms, graph_ms=None, wall_ms=None, **more):
    return point(path, seq, device_ms=device_ms, graph_ms=graph_ms, wall_ms=wall_ms, **more)


CLOCKED = run_of(
    clocked("standard", 512, 1.0, 1.1, 3.0, device_ms_low=0.9, device_ms_high=1.2),
    clocked("standard", 1024, 4.0, None, 8.0, notes=("cannot be captured as a graph",)),
    clocked("flash", 512, 0.5, 0.55, 2.0, device_ms_low=0.4, device_ms_high=0.6),
    clocked("flash", 1024, 1.0, 1.1, 2.0, launch_bound=True),
    seqs=(512, 1024),
)


@pytest.mark.parametrize(
    ("clock", "words", "standard", "ratios"),
    [
        ("device", "device ms, cold L2", [1.0, 4.0], [2.0, 4.0]),
        ("graph", "CUDA graph ms", [1.1, None], [2.0, None]),
        ("wall", "wall ms", [3.0, 8.0], [1.5, 4.0]),
    ],
)
def test_a_clock_draws_its_own_numbers_and_says_which(clock, words, standard, ratios):
    latency, speedup = figures.latency(CLOCKED, clock), figures.speedup(CLOCKED, clock)
    assert words in latency["layout"]["title"]["text"] and words in speedup["layout"]["title"]["text"]
    assert trace(latency, "standard-line")["y"] == standard
    assert trace(speedup, "flash-line")["y"] == [r and pytest.approx(r) for r in ratios]
    bands = [trace(latency, "flash-band")["y"], trace(speedup, "flash-band")["y"]]
    assert all((band != [None]) == (clock == "device") for band in bands), "only the device's clock has an interval"


def test_where_a_clock_has_no_number_the_line_stops_and_the_hover_says_why():
    figure = figures.latency(CLOCKED, "graph")
    edge = trace(figure, "standard-edge")
    assert (edge["x"], edge["yaxis"]) == ([1024], "y2")
    assert "cannot be captured as a graph" in edge["hovertext"][0] and "wall 8.00 ms" in edge["hovertext"][0]
    assert "at the top: no graph time" in texts(figure)
    assert "at the top" not in texts(figures.latency(CLOCKED, "wall"))
    never = run_of(clocked("standard", 512, 1.0), clocked("flash", 512, 0.5))
    assert "no pair of graph times" in texts(figures.speedup(never, "graph"))


def test_hover_lists_all_three_clocks():
    hover = trace(figures.latency(CLOCKED, "wall"), "standard-line")["hovertext"][0]
    assert "1.00 ms (0.900 ms to 1.20 ms)" in hover and "CUDA graph 1.10 ms · wall 3.00 ms" in hover
    ratio = trace(figures.speedup(CLOCKED), "flash-line")["hovertext"][0]
    assert "2.00× as fast as standard (1.50 to 3.00)<br>2.00× as CUDA graphs<br>1.50× by wall time" in ratio


@pytest.mark.parametrize("clock", figures.CLOCKS)
def test_a_launch_bound_point_announces_no_winner_by_any_clock(clock):
    figure = figures.speedup(CLOCKED, clock)
    assert trace(figure, "flash-line")["text"][1] == ""
    assert 1024 in trace(figures.latency(CLOCKED, clock), "flash-marks")["x"]


def test_the_subtitle_says_hot_where_the_cache_is_hot():
    hot = replace(CLOCKED, sweep=replace(CLOCKED.sweep, l2="hot"))
    assert "device ms, hot L2" in texts(figures.latency(hot))
    assert "L2" not in texts(figures.latency(replace(hot, device=CPU)))


def test_what_stands_for_a_point_says_whose():
    """A click is read from these."""
    for chart in CHARTS:
        for t in chart(MIXED)["data"]:
            kind = t["uid"].rpartition("-")[2]
            assert t.get("meta") == (t["legendgroup"] if kind not in ("growth", "crossover", "crossband") else None)


# Efficiency

MEASURED_HERE = replace(H200, matmul_tflops=(("bfloat16", 700.0),))


def rate_point(path, seq, tflops, **more):
    """A point of PROBLEM whose exact rate is `tflops`; its interval is 1 % on both sides."""
    m = Measurement.of(more.pop("problem", PROBLEM.at_seq(seq)), path, more.pop("status", "ok"))
    ms = m.flops / tflops / 1e9
    return replace(m, device_ms=ms, device_ms_low=ms / 1.01, device_ms_high=ms / 0.99, **more)


def test_efficiency_stands_under_the_dense_peak_and_what_was_measured_here():
    run = run_of(rate_point("standard", 512, 60.0), rate_point("flash", 512, 600.0), device=MEASURED_HERE)
    figure = figures.efficiency(run)
    assert trace(figure, "flash-line")["y"][0] == pytest.approx(600.0)
    assert trace(figure, "flash-band")["y"][:2] == [pytest.approx(594.0), pytest.approx(606.0)]
    assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [989.5, 700.0]
    assert "dense peak, data sheet: 990" in texts(figure) and "matrix product, measured here: 700" in texts(figure)
    hover = trace(figure, "flash-line")["hovertext"][0]
    assert "60.6% of the dense peak" in hover and "85.7% of a matrix product" in hover
    assert trace(figure, "flash-above")["x"] == [None]


def test_an_unknown_card_gets_no_invented_peak():
    """F19."""
    unknown = replace(MEASURED_HERE, name="Some Future GPU")
    figure = figures.efficiency(run_of(rate_point("flash", 512, 600.0), device=unknown))
    assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [700.0]
    assert "no data sheet peak known here" in texts(figure) and "dense peak" not in texts(figure)


def test_a_rate_above_the_peak_is_flagged_and_not_clipped():
    """F19."""
    run = run_of(rate_point("flash", 512, 600.0), rate_point("flash", 1024, 36_650.0, status="suspect"))
    figure = figures.efficiency(run)
    above = trace(figure, "flash-above")
    assert (above["x"], above["y"]) == ([1024], [pytest.approx(36_650.0)])
    assert above["text"] == ["3,704% of the peak"] and "above the peak" in above["hovertext"][0]
    assert figure["layout"]["yaxis"]["autorangeoptions"]["include"][1] > 36_650
    assert trace(figure, "flash-line")["y"][1] is None


def test_the_dense_count_is_another_curve_with_its_name_on_the_chart():
    """F18: 128 queries over 1,024 keys, causal."""
    problem = AttentionProblem(batch=2, seq_q=128, seq_kv=1024, heads=16, head_dim=64, causal=True)
    m = replace(Measurement.of(problem, "flash", "ok"), device_ms=1.0)
    run = Run(
        id="r", sweep=Sweep(problem=problem, seqs=(1024,), seq_q=128), state="done", created="2026-11-30", device=H200,
        measurements=(m,),
    )  # fmt: skip
    exact, dense = figures.efficiency(run, "exact"), figures.efficiency(run, "dense")
    assert trace(exact, "flash-line")["y"] == [pytest.approx(1.007157248)]
    assert trace(dense, "flash-line")["y"] == [pytest.approx(1.073741824)]
    assert "exact count" in texts(exact) and "dense count" in texts(dense)
    assert "1.07 TFLOP/s by the dense count" in trace(exact, "flash-line")["hovertext"][0]


# Growth and crossover


def quadratic(path, ms_at_512, power=2.0, **more):
    return [
        point(path, seq, device_ms=ms_at_512 * (seq / 512) ** power, peak_bytes=seq * 1024, **more)
        for seq in (512, 1024, 2048, 4096)
    ]


def test_the_fitted_power_lies_on_the_curve_and_is_named():
    run = run_of(*quadratic("standard", 1.0), *quadratic("flash", 0.5))
    fit = trace(figures.latency(run), "standard-growth")
    assert (fit["x"][0], fit["x"][-1]) == (512, 4096)
    assert [fit["y"][0], fit["y"][-1]] == [pytest.approx(1.0), pytest.approx(64.0)]
    assert "s<sup>2.00</sup>" in fit["text"] and not fit["showlegend"] and fit["hoverinfo"] == "skip"
    assert "s<sup>1.00</sup>" in trace(figures.memory(run), "flash-growth")["text"]
    assert trace(figures.latency(run, "wall"), "standard-growth")["x"] == [None], "the fit is of device time"
    assert trace(figures.latency(run_of()), "standard-growth")["x"] == [None]


def test_the_crossover_is_a_line_where_the_paths_are_even():
    run = run_of(*quadratic("standard", 1.0, 2.0), *quadratic("flash", 2.0, 1.0))
    line = trace(figures.speedup(run), "flash-crossover")
    assert line["x"] == [1024, 1024] and line["yaxis"] == "y2"
    assert trace(figures.speedup(run, "wall"), "flash-crossover")["x"] == [None]
    faster = run_of(*quadratic("standard", 2.0), *quadratic("flash", 1.0))
    assert trace(figures.speedup(faster), "flash-crossover")["x"] == [None]


def test_the_interval_of_the_crossover_is_a_band():
    points = [
        replace(m, device_ms_low=0.9 * m.device_ms, device_ms_high=1.1 * m.device_ms)
        for m in (*quadratic("standard", 1.0, 2.0), *quadratic("flash", 2.0, 1.0))
    ]
    band = trace(figures.speedup(run_of(*points)), "flash-crossband")
    low, high = band["x"][0], band["x"][-1]
    assert 512 < low < 1024 < high < 2048 and band["y"] == [0, 1, 1, 0]
