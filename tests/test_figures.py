import json
import re
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from samples import CPU, H200

from attnlab import figures
from attnlab.measurement import STATUSES, Measurement
from attnlab.paths import PATHS
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

PROBLEM = AttentionProblem(batch=4, seq_q=131_072, heads=32, head_dim=128)
CHARTS = (figures.latency, figures.memory, figures.speedup)


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
    ],
    ids=["mixed", "empty", "no device", "recorded CPU", "flash alone", "one length", "no number at all"],
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
    assert [figures.TOKENS[theme]["var(--attn-flash)"] for theme in ("light", "dark")] == ["#0b62d6", "#4db8ff"]
    used = {token for chart in CHARTS for token in re.findall(r"var\(--[^)]*\)", json.dumps(chart(MIXED)))}
    assert len(used) > 4 and used <= set(figures.TOKENS["light"]) == set(figures.TOKENS["dark"])


def test_every_path_has_its_own_colour_with_contrast():
    assert set(PATHS) <= set(figures.PATH_COLORS) == set(figures.PATH_SYMBOLS)
    for theme, background in enumerate(figures.CHROME["page"]):
        colors = [pair[theme] for pair in figures.PATH_COLORS.values()]
        assert len(set(colors)) == len(colors)
        assert min(contrast(color, background) for color in colors) >= 3.0
        assert contrast(figures.CHROME["text"][theme], background) >= 7.0
        assert contrast(figures.CHROME["quiet"][theme], background) >= 4.5


def contrast(a, b):
    """WCAG 2 contrast ratio of two "#rrggbb" colours, 1 to 21."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_theme_of_the_page_is_the_theme_of_the_charts():
    tomllib = pytest.importorskip("tomllib", reason="reads TOML with Python 3.11 or newer")
    config = tomllib.loads((Path(__file__).parents[1] / ".streamlit" / "config.toml").read_text())
    for theme, name in enumerate(("light", "dark")):
        page = config["theme"][name]
        assert page["chartCategoricalColors"] == [pair[theme] for pair in figures.PATH_COLORS.values()][:10]
        assert page["backgroundColor"] == figures.CHROME["page"][theme]
        assert page["textColor"] == figures.CHROME["text"][theme]
    assert config["browser"]["gatherUsageStats"] is False
    assert config["server"]["address"] == "127.0.0.1"
    assert "http" not in json.dumps(config), "nothing may be fetched from outside"


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
