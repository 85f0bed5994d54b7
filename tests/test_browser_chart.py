"""The chart component in a real browser: what a viewer does to a chart lasts while points stream in (F24)."""

import pytest

pytestmark = pytest.mark.browser

# Three charts, and a twin that starts out identical to the first, get one more point every 0.3 s, up to the number that
# the test wrote into a file.
STREAM = """
import os
from pathlib import Path

import streamlit as st

from attnlab import figures
from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep, powers_of_two
from attnlab.ui.chart import plotly_chart

st.set_page_config(layout="wide")
problem = AttentionProblem(batch=1, seq_q=16_384, heads=8, head_dim=64)
sweep = Sweep(problem=problem, seqs=powers_of_two(16_384))
device = Device(kind="cuda", name="A card", uuid="u", total_bytes=80 << 30, free_bytes=79 << 30)


def measured(path, seq):
    slow = 4.0 if path == "standard" else 1.0
    ms = slow * (seq / 1024) ** 2
    return Measurement(
        problem=problem.at_seq(seq), path=path, status="ok", provider="a kernel 1.0", device_ms=ms,
        device_ms_low=0.9 * ms, device_ms_high=1.1 * ms, samples=9, peak_bytes=int(slow * seq * 8192),
    )


points = [measured(path, seq) for seq in sweep.seqs for path in sweep.paths]


@st.fragment(run_every=0.3)
def charts():
    most = int(Path(os.environ["MOST_POINTS"]).read_text())
    shown = st.session_state["shown"] = min(st.session_state.get("shown", -1) + 1, most)
    run = Run(
        id="r", sweep=sweep, state="running", created="2026-11-30", device=device, measurements=tuple(points[:shown])
    )
    for column, (key, draw) in zip(st.columns(2), (("latency", figures.latency), ("memory", figures.memory))):
        with column:
            plotly_chart(draw(run), key=key, height="420px", alt=f"{key}, {shown} points")
    for column, (key, draw) in zip(st.columns(2), (("speedup", figures.speedup), ("twin", figures.latency))):
        with column:
            plotly_chart(draw(run), key=key, height="420px", alt=f"{key}, {shown} points")


charts()
"""
POINTS = 16

CHART = '.attnlab-chart[aria-label^="{}, "]'
PLAIN_NUMBERS = """(chart) => (chart?._fullData ?? []).filter((trace) => trace.uid.endsWith("-line"))
    .reduce((sum, trace) => sum + trace.y.filter((y) => y !== null).length, 0)"""
VISIBLE = "(chart) => Object.fromEntries(chart._fullData.map((trace) => [trace.uid, trace.visible]))"
SCROLLED = "document.querySelector('[data-testid=stMain]').scrollTop"
RANGES = "(chart) => [chart._fullLayout.xaxis.range, chart._fullLayout.yaxis.range]"

# In every frame from now on: is each chart still there, the same node, with its axes and at least its lines' layers?
WATCH = """() => {
    const charts = [...document.querySelectorAll(".attnlab-chart")];
    window.framesSeen = 0;
    window.blanks = [];
    const look = () => {
        window.framesSeen += 1;
        for (const chart of charts) {
            const seen = [chart.isConnected, chart.querySelector(".scatterlayer .trace .lines > path") !== null,
                chart.querySelector(".xtick") !== null, chart.clientHeight === 420];
            if (seen.includes(false)) window.blanks.push([window.framesSeen, chart.ariaLabel, ...seen]);
        }
        requestAnimationFrame(look);
    };
    look();
    return charts.length;
}"""


@pytest.fixture
def most_points(tmp_path):
    file = tmp_path / "most_points"
    file.write_text("4")
    return file


@pytest.fixture
def page(chromium_page, start_app, tmp_path, most_points):
    script = tmp_path / "stream.py"
    script.write_text(STREAM, encoding="utf-8")
    chromium_page.goto(start_app(script, {"MOST_POINTS": str(most_points)}))
    wait_for_points(chromium_page, "latency", 1)
    return chromium_page


def wait_for_points(page, chart, count):
    page.wait_for_function(
        f"([selector, count]) => ({PLAIN_NUMBERS})(document.querySelector(selector)) >= count",
        arg=[CHART.format(chart), count],
    )


def test_zoom_and_hidden_series_outlast_new_points(page, most_points):
    latency = page.locator(CHART.format("latency"))
    for chart in ("latency", "memory", "twin"):
        wait_for_points(page, chart, 4)
    assert page.evaluate(WATCH) == 4
    handle = latency.element_handle()

    # A viewer drags a box around a part of the curve, and hides one series by its legend entry.
    plot = latency.locator(".nsewdrag").first.bounding_box()
    start_x, start_y = plot["x"] + 0.3 * plot["width"], plot["y"] + 0.3 * plot["height"]
    page.mouse.move(start_x, start_y)
    page.mouse.down()
    page.mouse.move(start_x + 60, start_y + 40, steps=5)
    most_points.write_text("8")
    wait_for_points(page, "twin", 8)  # these arrive while the mouse is down
    page.mouse.move(start_x + 120, start_y + 90, steps=5)
    page.mouse.up()
    latency.locator(".legendtoggle").nth(1).click()
    page.wait_for_function(f"(chart) => ({VISIBLE})(chart)['flash-line'] === 'legendonly'", arg=handle)
    zoomed = handle.evaluate(RANGES)
    full = page.locator(CHART.format("twin")).evaluate(RANGES)
    assert zoomed[0][1] - zoomed[0][0] < 0.6 * (full[0][1] - full[0][0])
    page.evaluate(f"{SCROLLED} = 120")
    assert page.evaluate(SCROLLED) == 120

    most_points.write_text(str(POINTS))
    wait_for_points(page, "latency", POINTS)

    assert handle.evaluate("chart => chart.isConnected"), "the chart was mounted anew"
    assert handle.evaluate(RANGES) == zoomed
    hidden = {uid for uid, visible in handle.evaluate(VISIBLE).items() if visible == "legendonly"}
    assert hidden == {"flash-band", "flash-line", "flash-marks", "flash-growth", "flash-edge"}
    assert latency.get_attribute("aria-label") == f"latency, {POINTS} points"
    # The others are untouched: nothing hidden, the whole sweep on the x axis.
    twin = page.locator(CHART.format("twin"))
    assert set(twin.evaluate(VISIBLE).values()) == {True}
    assert twin.evaluate(RANGES)[0] == full[0]

    assert page.evaluate("window.framesSeen") > 20
    assert page.evaluate("window.blanks") == []
    assert page.evaluate(SCROLLED) == 120
    assert page.locator("[data-testid=stException]").count() == 0


def test_plotly_is_fetched_once_and_colours_follow_the_theme(page):
    wait_for_points(page, "twin", 4)
    names = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len([name for name in names if name.endswith("plotly.min.js")]) == 1
    latency = page.locator(CHART.format("latency")).element_handle()
    colors = "(chart) => chart._fullData.filter((t) => t.uid === 'flash-line').map((t) => t.line.color)"
    assert latency.evaluate(colors) == ["#0b62d6"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("(chart) => chart.dataset.theme === 'dark'", arg=latency)
    assert latency.evaluate(colors) == ["#4db8ff"]
    assert latency.evaluate("(chart) => chart._fullLayout.font.color") == "#f1f4f7"


def test_a_chart_is_as_wide_as_its_column(page):
    latency = page.locator(CHART.format("latency")).element_handle()
    fits = "(chart) => Math.abs(chart._fullLayout.width - chart.clientWidth) < 1 && chart._fullLayout.height === 420"
    page.wait_for_function(fits, arg=latency)
    wide = latency.evaluate("(chart) => chart.clientWidth")
    page.set_viewport_size({"width": 900, "height": 720})
    page.wait_for_function(f"(chart) => chart.clientWidth < {wide} && ({fits})(chart)", arg=latency)
