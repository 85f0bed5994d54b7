"""The roofline and memory pages through AppTest, with the real lab and store, and a fake worker or a recorded run."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import figure_of
from samples import H200
from streamlit.testing.v1 import AppTest

from attnlab import cost, estimate, memory_plan, textbook
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

ROOT = Path(__file__).resolve().parents[1]
MARK = "recorded on NVIDIA H200, 2026-11-30"
PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)
TIMES_MS = {("standard", 1024): 0.73, ("standard", 4096): 11.9, ("flash", 1024): 0.1216, ("flash", 4096): 1.492}
SWEEP = Sweep(problem=PROBLEM, seqs=(1024, 4096))


def a_run(**more):
    device = replace(H200, matmul_tflops=(("bfloat16", 779.0),), copy_tbs=4.1)
    points = [
        Measurement.of(
            PROBLEM.at_seq(seq), path, "ok", device_ms=ms,
            peak_bytes=round(1.1 * cost.predicted_peak_bytes(PROBLEM.at_seq(seq), path)),
        )
        for (path, seq), ms in TIMES_MS.items()
    ]  # fmt: skip
    common = {"state": "done", "created": "2026-11-30T10:00:00+00:00", "device": device, "recorded": True}
    return Run(id="h200", sweep=SWEEP, measurements=tuple(points), **common | more)


@pytest.fixture
def open_page(page_lab):
    """open_page(name, link, recorded=(run, …), **fake) → the page once the worker has said what it measures on."""

    def open_page(name, link=None, recorded=(), **fake):
        lab = page_lab({run.id: run for run in recorded}, **{"kind": "cpu"} | fake)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.session_state["_routed"] = True
        app.switch_page(f"pages/{name}.py")
        for key, value in (link or {}).items():
            app.query_params[key] = value
        limit = time.monotonic() + 60
        while lab.snapshot().worker.device is None and time.monotonic() < limit:
            time.sleep(0.05)
        app.run()
        assert not app.exception, app.exception
        return app

    open_page.labs = page_lab.labs
    return open_page


def said(page):
    spoken = unescape(page.get("html")[0].value).replace("\u2060", "")
    return "\n".join([spoken, *(part.value.replace("\\", "") for part in page.main.markdown)])


def charts(page):
    return [figure_of(chart) for chart in page.get("bidi_component")]


def trace(figure, uid):
    (found,) = [trace for trace in figure["data"] if trace["uid"] == uid]
    return found


# Roofline


def test_a_recorded_run_stands_under_its_roof_and_is_marked(open_page):
    page = open_page("roofline", recorded=(a_run(),))
    roof, times = charts(page)
    words = " ".join(a["text"] for a in roof["layout"]["annotations"])
    assert "dense peak, data sheet: 989.5 TFLOP/s" in words and "4.8 TB/s" in words
    assert "flash computes 737 TFLOP/s, 74 % of NVIDIA H200's dense peak" in said(page)
    assert said(page).count(MARK) >= 3 and MARK in times["layout"]["xaxis"]["title"]["text"]
    sheet = estimate.data_sheet_roof("H200", "bfloat16")
    floors = [estimate.estimate(PROBLEM.at_seq(seq), "standard", sheet).ms for seq in SWEEP.seqs]
    assert trace(times, "standard-floor")["y"] == floors
    table = page.dataframe[0].value
    assert list(table["measured"]) == [
        TIMES_MS[path, seq] for path, seq in zip(table["path"], table["seq"], strict=True)
    ]
    flash = table[(table["path"] == "flash") & (table["seq"] == 4096)].iloc[0]
    assert flash["share"] == pytest.approx(1.1112 / 1.492, abs=1e-3) and flash["note"] == ""
    assert "off by more than 25 %" in table[table["path"] == "standard"].iloc[0]["note"]
    assert "off by more than 25 % at 3 of 4 points" in said(page)


def test_the_textbook_stands_beside_what_is_counted(open_page):
    page = open_page("roofline", recorded=(a_run(),))
    table = page.dataframe[1].value
    for seq, row in zip(textbook.SEQS, table.itertuples(index=False), strict=True):
        assert tuple(row)[:6] == textbook.row(seq, *textbook.textbook(seq))
    assert list(table["heads"])[-1] == "4.9x" and list(table["counted"])[-1] == "7.4x"
    assert set(table["counted_bound"]) == {"memory-bound"}
    assert "4.9× slower" in said(page)


def test_the_last_run_of_this_machine_comes_first(open_page):
    page = open_page("roofline", recorded=(a_run(),))
    lab = open_page.labs[0]
    problem = AttentionProblem(batch=1, seq_q=256, heads=2, head_dim=32, dtype="float32")
    lab.wait(lab.submit(Sweep(problem=problem, seqs=(128, 256), refine=False)), 30)
    page.run()
    assert page.selectbox("r_show").value == "Last run on this machine"
    assert set(page.dataframe[0].value["seq"]) <= {128, 256} and MARK not in said(page)
    page.selectbox("r_show").set_value("h200").run()
    assert page.query_params["r_show"] == "h200" and MARK in said(page)


def test_a_cpu_has_what_was_measured_on_it(open_page):
    page = open_page("roofline")
    (roof,) = [trace for trace in charts(page)[0]["data"] if trace["uid"].startswith("roof-")]
    assert roof["uid"] == "roof-measured" and "Fake CPU, measured: " in said(page)
    assert "data sheet" not in json.dumps(charts(page)[0])


def test_no_roof_is_made_up_but_two_numbers_make_one(open_page):
    page = open_page("roofline", {"r_gpu": "T4"})  # which has no bfloat16
    assert "No roof is known" in said(page) and not charts(page)[0]["data"]
    page.selectbox("r_gpu").set_value("Two numbers").run()
    page.number_input("r_peak").set_value(100.0).run()
    page.number_input("r_bandwidth").set_value(2.0).run()
    assert trace(charts(page)[0], "roof-given")["y"][-1] == 100
    assert "ridge at 50 FLOP/B" in said(page)
    assert page.query_params["r_peak"] == "100.0"


def test_a_point_above_the_roof_is_flagged(open_page):
    page = open_page("roofline", {"r_gpu": "A100-SXM4-80GB"}, recorded=(a_run(),))
    flag = trace(charts(page)[0], "flash-above")
    assert len(flag["x"]) == 2 and flag["text"][1].endswith(" %")
    assert "above the roof" in page.dataframe[0].value["note"].str.cat()


@pytest.mark.parametrize(
    ("page", "link", "words"),
    [
        ("roofline", {"r_gpu": "H2000"}, "r_gpu is 'H2000' in the link, legal: The device of the points"),
        ("roofline", {"r_peak": "nan"}, "r_peak is 'nan' in the link, legal: numbers from 0.001"),
        ("memory", {"m_batch": "1e3"}, "m_batch is '1e3' in the link, legal: whole numbers from 1 to 4,096"),
        ("memory", {"m_dtype": "int8"}, "m_dtype is 'int8' in the link, legal: bfloat16, float16, float32"),
        ("memory", {"m_causal": "perhaps"}, "m_causal is 'perhaps' in the link, legal: true, false"),
    ],
)
def test_a_link_that_cannot_be_is_said(open_page, page, link, words):
    opened = open_page(page, link)
    assert words in opened.sidebar.warning[0].value.replace("\\", "")


# Memory


def test_what_fits_on_the_recorded_device(open_page):
    page = open_page("memory", recorded=(a_run(),))
    problem = PROBLEM.at_seq(16_384)
    assert f"ends at sequence {memory_plan.longest_seq(problem, 'standard', H200.total_bytes):,}" in said(page)
    assert MARK in said(page).splitlines()[0]
    (chart,) = charts(page)
    assert chart["layout"]["shapes"][0]["y0"] == H200.total_bytes
    assert trace(chart, "flash-measured")["x"] == [1024, 4096]
    checked = page.dataframe[1].value
    assert list(checked["deviation"]) == pytest.approx([1 / 1.1 - 1] * 4, abs=1e-3)
    assert "standard -9 % at" in said(page)


def test_parts_add_up_in_the_table(open_page):
    page = open_page("memory", {"m_gpu": "A100-SXM4-80GB", "m_kv_heads": "8"})
    table = page.dataframe[0].value.set_index("Part")
    assert list(table.columns) == ["standard, inference", "flash, inference", "standard, training", "flash, training"]
    assert table.loc["Longest sequence that fits", "standard, inference"] == "12,841"
    assert table.loc["dQ accumulator in float32", "flash, training"] == "1 GiB"
    assert table.loc["dK and dV for each query head", "flash, training"] == "1 GiB"
    assert "In the 80 GiB of A100-SXM4-80GB" in said(page)


def test_points_of_another_shape_stay_out_of_the_chart_until_it_is_taken(open_page):
    page = open_page("memory", {"m_batch": "2"}, recorded=(a_run(),))
    assert "stay out of the chart" in said(page)
    assert not [t for t in charts(page)[0]["data"] if t["uid"].endswith("-measured")]
    page.button("m_take").click().run()
    assert not page.exception and page.number_input("m_batch").value == 4
    assert trace(charts(page)[0], "flash-measured")["x"] == [1024, 4096]


def test_a_number_of_gib(open_page):
    page = open_page("memory", {"m_gpu": "A number of GiB", "m_gib": "24"})
    assert "In the 24 GiB of this device" in said(page)
    page.number_input("m_heads").set_value(30).run()
    page.number_input("m_kv_heads").set_value(4).run()
    assert "kv_heads is 4, which does not divide heads = 30" in page.sidebar.error[0].value.replace("\\", "")
    assert not page.exception


def test_the_cache_and_what_paging_saves(open_page):
    link = {"m_gpu": "H200", "m_kv_heads": "8", "m_lengths": "100,33,1", "m_block": "16"}
    page = open_page("memory", link)
    metrics = {metric.label: metric.value for metric in page.main.metric}
    assert metrics["Saved by paging"] == "41 %" and metrics["One token, all layers"] == "128 KiB"
    page.text_input("m_lengths").set_value("5, many").run()
    assert "lengths holds 'many'; legal: whole numbers" in page.main.error[0].value.replace("\\", "")
    assert "4 TiB" in said(page) and not page.exception


def test_heads_over_devices_and_the_way_to_measure_a_share(open_page):
    page = open_page("memory", {"m_gpu": "A100-SXM4-80GB", "m_kv_heads": "4"})
    table = page.dataframe[2].value.set_index("Devices")
    assert list(table.index) == ["1", "2", "4", "8"] and list(table["Heads"]) == ["32", "16", "8", "4"]
    assert list(table["KV heads"]) == ["4", "2", "1", "1"]
    assert table.loc["8", "Note"] == "each KV head is held by 2 devices"
    assert "8.0× by 8 devices" in said(page)
    (button,) = page.get("link_button")
    query = {key: values[0] for key, values in parse_qs(urlsplit(button.proto.url).query).items()}
    assert {"batch": "4", "heads": "4", "kv_heads": "1", "head_dim": "128", "seq": "16384"}.items() <= query.items()
    page.number_input("m_devices").set_value(3).run()
    assert "32 heads do not divide among 3 devices" in page.main.error[0].value.replace("\\", "")


def test_what_was_set_is_there_when_the_visitor_comes_back(open_page):
    page = open_page("memory")
    page.number_input("m_batch").set_value(7).run()
    page.switch_page("pages/roofline.py").run()
    page.run()
    page.switch_page("pages/memory.py").run()
    assert not page.exception and page.number_input("m_batch").value == 7


@pytest.mark.parametrize(("name", "charts_there"), [("roofline", 2), ("memory", 1)])
def test_in_a_browser_the_picture_is_on_the_first_screen_of_a_small_projector(
    chromium_page, start_app, tmp_path, name, charts_there
):
    chromium_page.goto(start_app(ROOT / "app.py", query=f"/{name}"))
    drawn = chromium_page.locator(".attnlab-chart .main-svg")
    drawn.nth(charts_there - 1).wait_for()
    chart = chromium_page.locator(".attnlab-chart")
    for number in range(charts_there):
        box = chart.nth(number).bounding_box()
        assert box["y"] + box["height"] <= 720
    assert "recorded on NVIDIA H200" in chromium_page.get_by_test_id("stHtml").locator("p").first.inner_text()
