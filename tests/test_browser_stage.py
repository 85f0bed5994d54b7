"""The stage in Chromium: the keys of a presenter and of a clicker, what grows with the screen, what stays inside it.

`chromium_page` fails a test whose page asks anything but this machine.
"""

import json
import re
import sys
from pathlib import Path

import pytest
import streamlit as st

from attnlab import talk

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.browser

SHIPPED = talk.read(talk.SHIPPED)
CHART = ".st-key-stage .attnlab-chart"
YAXIS = f"document.querySelector('{CHART}')?._fullLayout?.yaxis?.type"
# Names whose label is drawn.
LABELS = f"""[...(document.querySelector('{CHART}')?.layout?.annotations ?? [])]
    .map((a) => a.name ?? '').filter((n) => n.startsWith('label-')).map((n) => n.slice(6)).join()"""
# Boxes of every label and of the chart, on the screen.
BOXES = f"""(() => {{
    const chart = document.querySelector('{CHART}');
    const box = (e) => {{ const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; }};
    const labels = chart.layout.annotations.map((a, i) => [a.name ?? '', i]).filter(([n]) => n.startsWith('label-'));
    const drawn = (i) => chart.querySelector(`.annotation[data-index="${{i}}"] text`);
    return {{ chart: box(chart), labels: labels.map(([, i]) => box(drawn(i))) }};
}})()"""
OUT_OF_SIGHT = """[document.querySelector('[data-testid=stMain]').scrollHeight - innerHeight,
    document.querySelector('[data-testid=stMain]').scrollWidth - innerWidth]"""


@pytest.fixture
def stage(chromium_page, start_app):
    """stage(query, **mode) → the page with the stage on it; the worker computes nothing (fake_worker.py)."""

    def open_stage(query="", address="/stage", **mode):
        worker = f"{sys.executable} {ROOT / 'tests/fake_worker.py'}"
        url = start_app(ROOT / "app.py", {"ATTNLAB_WORKER": worker, "FAKE_WORKER": json.dumps(mode)})
        chromium_page.goto(url + address + query)
        chromium_page.locator(".attnlab-headline").wait_for()
        chromium_page.locator(".attnlab-keys").wait_for()
        return chromium_page

    return open_stage


def at(page, number):
    page.locator(
        ".attnlab-headline", has_text=re.compile(f"^{re.escape(SHIPPED.steps[number - 1].headline)}$")
    ).wait_for()
    page.wait_for_url(re.compile(rf"step={number}\b"))


def live(page):
    page.locator(".st-key-stage_line").get_by_text("measured in").wait_for()


def labels(page, *paths):
    page.wait_for_function(f"{LABELS} === '{','.join(paths)}'")


def test_arrows_and_a_clicker_walk_the_talk_and_space_plays_the_tiles(stage):
    page = stage(kind="cpu")
    at(page, 1)
    assert page.get_by_role("link", name="Live lab").count() == 0, "no menu on the stage"
    for number, key in ((2, "ArrowRight"), (3, "PageDown"), (4, "ArrowRight")):
        page.keyboard.press(key)
        at(page, number)
    page.locator(".attnlab-tiles[data-step='0']").wait_for()
    page.keyboard.press(" ")
    page.wait_for_function("Number(document.querySelector('.attnlab-tiles').dataset.step) > 3")
    for key in ("PageUp", "ArrowLeft", "ArrowLeft"):  # faster than the page runs: none is lost
        page.keyboard.press(key)
    at(page, 1)
    page.keyboard.press("ArrowRight")
    at(page, 2)
    page.keyboard.press("Home")
    at(page, 1)
    says = page.locator(".attnlab-keys")
    assert "log / linear" in says.inner_text()
    page.get_by_role("button", name="Go to the rehearsal").click()
    page.get_by_role("button", name="Rehearse", exact=True).wait_for()
    page.keyboard.press("ArrowRight")
    at(page, 1)
    page.get_by_role("button", name="Dismiss the keys").click()
    page.keyboard.press("ArrowRight")
    at(page, 2)
    assert says.inner_text() == ""
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Live lab").wait_for()
    assert page.evaluate("document.documentElement.style.fontSize") == "", "the rest of the app is as it was"


def test_l_turns_the_scale_p_reveals_space_runs_and_n_brings_a_preset(stage):
    page = stage("?step=2")
    live(page)
    page.wait_for_function(f"{YAXIS} === 'linear'")
    page.keyboard.press("l")
    page.wait_for_function(f"{YAXIS} === 'log'")
    labels(page, "standard", "flash")
    page.keyboard.press("p")
    labels(page, "standard")
    page.keyboard.press("p")
    labels(page, "standard", "flash")
    line = page.locator(".st-key-stage_line")
    for key in (" ", "r"):
        updates = page.locator(CHART).get_attribute("data-updates")
        page.keyboard.press(key)
        page.wait_for_function(f"document.querySelector('{CHART}').dataset.updates > {updates}")
        live(page)
    page.keyboard.press("n")
    line.get_by_text("Llama-3 8B, prefill").wait_for()


def test_keys_that_a_slider_needs_are_left_to_it_and_the_pointer_gives_them_back(stage):
    page = stage("?step=2")
    live(page)
    thumb = page.locator(".st-key-g_heads input[type=range]")
    thumb.focus()
    thumb.press("ArrowRight")
    page.locator(".st-key-stage_line").get_by_text("heads 33").wait_for()
    at(page, 2)
    page.mouse.move(*centre(page.locator(".st-key-g_heads [role=slider], .st-key-g_heads input[type=range]").first))
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("!document.activeElement?.matches('input[type=range], [role=slider]')")
    page.keyboard.press("ArrowRight")
    at(page, 3)


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.skipif(not hasattr(st, "grid"), reason="Streamlit 1.65, the last for Python 3.10, pads the page more")
def test_nothing_is_cut_and_type_grows_with_the_screen(stage):
    page = stage("?step=1", kind="cpu")
    for number, step in enumerate(SHIPPED.steps, start=1):
        at(page, number)
        chart = ".attnlab-tiles" if step.kind == "tiles" else CHART
        page.locator(chart).first.wait_for()
        if chart == CHART:
            page.wait_for_function(f"document.querySelector('{CHART}').layout?.meta?.grows_to > 1")
        for width, height in ((1280, 720), (1920, 1080), (3840, 2160)):
            page.set_viewport_size({"width": width, "height": height})
            where = f"step {number} at {width} × {height}"
            page.wait_for_function(f"innerWidth === {width} && String({OUT_OF_SIGHT}) === '0,0'")
            headline = page.locator(".attnlab-headline")
            size = headline.evaluate("(e) => parseFloat(getComputedStyle(e).fontSize)")
            assert size >= 0.05 * height, f"readable from the last row: {where}"
            assert headline.evaluate("(e) => e.scrollWidth <= e.clientWidth"), where
            assert page.locator(chart).first.bounding_box()["height"] > 0.45 * height, where
        page.keyboard.press("ArrowRight")


def test_labels_at_line_ends_stay_inside_the_chart_and_off_one_another(stage):
    page = stage("?step=2", kind="cpu")
    labels_apart(page)  # of memory
    page.goto(page.url.split("?")[0] + "?step=8&replay=h200")
    labels_apart(page)  # of latency


def labels_apart(page):
    shown = ["standard", "flash"]
    for path in (None, "flash-attn-2", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient"):
        if path:
            page.keyboard.press("p")
            shown.append(path)
        labels(page, *shown)
        boxes = page.evaluate(BOXES)
        left, top, right, bottom = boxes["chart"]
        assert len(boxes["labels"]) == len(shown)
        for box in boxes["labels"]:
            assert left <= box[0] and box[2] <= right and top <= box[1] and box[3] <= bottom
        for n, a in enumerate(boxes["labels"]):
            for b in boxes["labels"][:n]:
                shared = min(a[3], b[3]) - max(a[1], b[1]), min(a[2], b[2]) - max(a[0], b[0])
                assert min(shared) < 4, "letters of two labels do not meet"  # px; a line is higher than its letters


def test_the_live_page_opens_the_stage_by_its_address(stage):
    shape = "?stage=true&batch=2&seq=512&heads=5&head_dim=64&dtype=float16&direction=forward"
    page = stage(shape, address="/")
    at(page, 8)
    page.locator(".st-key-stage_line").get_by_text("batch 2, heads 5, dim 64, float16").wait_for()
    assert "g_heads=5" in page.url
