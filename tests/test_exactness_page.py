"""The exactness page through AppTest, with the real lab and store, and a fake worker, the real one, or recorded runs."""

from html import unescape
from pathlib import Path

import pytest
import streamlit as st
from apptest import until
from conftest import figure_of
from looks import CONTROL, answer, exactness, look, point
from samples import H200
from streamlit.testing.v1 import AppTest

from attnlab import edges, verdicts
from attnlab.finding import Finding
from attnlab.paths import PATHS

ROOT = Path(__file__).resolve().parents[1]
TINY = {"batch": "1", "seq": "256", "heads": "2", "head_dim": "32", "dtypes": "float32", "paths": "standard,flash"}
MARK = "recorded on NVIDIA H200, 2026-11-30"


@pytest.fixture
def open_page(page_lab):
    """open_page(link, recorded=(run, …), real=False) → the page after its first run."""

    def open_page(link=None, recorded=(), real=False, page="pages/exactness.py", **fake):
        lab = page_lab({run.id: run for run in recorded}, real, **{"kind": "cpu"} | fake)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.run()
        if page:
            app.switch_page(page)
            app.query_params.clear()
            for key, value in (link or {}).items():
                app.query_params[key if key in ("show", "at") else f"x_{key}"] = value
            app.run()
        assert not app.exception
        until(app, lambda app: lab.snapshot().worker.device is not None, said)
        return app.run()  # with the device

    open_page.labs = page_lab.labs
    return open_page


def said(page):
    return "\n".join(
        [unescape(page.get("html")[0].value).replace("\u2060", ""), *(part.value for part in page.main.markdown)]
    )


def ended(task):
    """Whether the task's runs have all ended, and the page has been drawn since."""

    def ready(page):
        return f"[Checking] {task}" not in said(page)

    return ready


def figure(page):
    (chart,) = page.get("bidi_component")
    return figure_of(chart)


def tables(page):
    """Exactness, determinism, one edge, what is supported, the reasons."""
    return [table.value for table in page.dataframe]


def test_a_first_visitor_is_told_that_nothing_is_measured(open_page):
    page = open_page()
    assert "Flash is exact attention, not an approximation. Press Check to measure it here." in said(page)
    assert "not bit-for-bit equal" in said(page) and said(page).count("Not measured") == 4
    assert set(tables(page)[0]["verdict"]) == {verdicts.NOT_MEASURED}
    assert not any(y for trace in figure(page)["data"] for y in trace["y"])
    assert "2 × error(standard in the same dtype) + 1e-5" in said(page)
    assert not page.button("x_check").disabled and page.button("x_stop").disabled


@pytest.mark.parametrize(
    ("kind", "batch", "heads", "head_dim", "seq"), [("cpu", 1, 4, 64, 1024), ("cuda", 2, 16, 128, 8192)]
)
def test_the_defaults_fit_the_device(open_page, kind, batch, heads, head_dim, seq):
    page = open_page(kind=kind)
    assert (page.slider("x_batch").value, page.slider("x_heads").value) == (batch, heads)
    assert (page.select_slider("x_head_dim").value, page.select_slider("x_seq").value) == (head_dim, seq)
    assert page.session_state["x_dtypes"] == ["bfloat16", "float32"]
    paths = ["standard", "flash", *(name for name in PATHS if name.startswith("sdpa"))]
    assert page.multiselect("x_paths").value == paths


def test_a_path_that_is_not_here_is_not_asked_for(open_page):
    page = open_page(missing=["sdpa-cudnn"])
    assert "sdpa-cudnn" not in page.multiselect("x_paths").value
    assert "Not here: sdpa-cudnn" in [caption.value for caption in page.sidebar.caption]


def test_a_real_run_to_the_end_and_every_look_after_it(open_page):
    page = open_page(TINY, real=True)
    page.button("x_check").click().run()
    until(page, ended("exactness"), said)
    assert "In float32 at sequence 256 flash and standard attention both agree with float64 to 1e-6." in said(page)
    answers = tables(page)[0]
    assert list(answers["what"]) == ["O", CONTROL.what] * 2
    assert set(answers["verdict"]) == {"✓ PASS", "✓ rejected"}
    assert all(0 < error < 1e-5 for error in answers[answers["what"] == "O"]["relative"])
    line = next(trace for trace in figure(page)["data"] if trace["uid"] == "flash-float32-line")
    assert line["x"] == [128, 256] and all(line["y"])

    for task, column in (("determinism", "identical"), ("edges", "got")):
        page.button(f"x_{task}").click().run()
        until(page, ended(task), said)
        table = tables(page)[1 if task == "determinism" else 2]
        assert set(table["path"]) == {"standard", "flash"}
        assert all(table[column].notna()), table.to_string()
    page.button("x_support").click().run()
    until(page, ended("support"), said)
    matrix = tables(page)[3].set_index("feature")
    assert list(matrix.columns) == ["standard", "flash"]
    assert matrix.loc["causal", "flash"] == "✓"


def test_pressed_again_it_is_measured_anew(open_page):
    page = open_page(TINY, real=True)
    shown = []
    for _ in range(2):
        until(page, lambda page: not page.button("x_check").disabled, said)  # drawn since the run before has ended
        page.button("x_check").click().run()
        until(page, ended("exactness"), said)
        shown.append(page.session_state["exactness_looks"]["exactness"])
    assert shown[0] != shown[1]


def test_stop_ends_what_runs(open_page):
    page = open_page(TINY | {"dtypes": "float32,bfloat16"}, delay_s=5.0)
    page.button("x_check").click().run()
    assert not page.button("x_stop").disabled
    page.button("x_stop").click().run()
    until(page, ended("exactness"), said)
    ids = page.session_state["exactness_looks"]["exactness"]
    assert [open_page.labs[0].snapshot(run_id).run.state for run_id in ids] == ["cancelled", "cancelled"]
    assert "Cancelled" in said(page)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("dtypes", "no dtype is chosen; legal: bfloat16, float16, float32"),
        ("paths", "no path to measure; legal: standard, flash"),
    ],
)
def test_bad_input_is_refused_in_words(open_page, key, words):
    page = open_page()
    if key == "paths":
        page.multiselect("x_paths").set_value([]).run()
    else:
        page.session_state["x_dtypes"] = []
        page.run()
    assert not page.exception
    assert words in page.sidebar.error[0].value.replace("\\", "")
    assert words in said(page).replace("\\", "")
    assert page.button("x_check").disabled and page.button("x_edges").disabled


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"batch": "0"}, "x_batch is '0' in the link, legal: whole numbers from 1 to 64"),
        ({"seq": "1e999"}, "x_seq is '1e999' in the link, legal: 128, 256"),
        ({"dtypes": "float32,int8"}, "x_dtypes is 'float32,int8' in the link, legal: bfloat16, float16, float32"),
        ({"paths": "magic"}, "x_paths is 'magic' in the link, legal: standard, flash"),
        ({"causal": "perhaps"}, "x_causal is 'perhaps' in the link, legal: true, false"),
        ({"show": "A100"}, "show is 'A100' in the link, legal: nothing, for no look is recorded here"),
        ({"at": "far"}, "at is 'far' in the link, legal: a sequence length"),
        ({"direction": "up"}, "x_direction is 'up' in the link, legal: forward"),
    ],
)
def test_a_link_that_cannot_be_is_said_and_the_defaults_stand(open_page, link, words):
    page = open_page(link)
    assert words in said(page).replace("\\", "") and words in page.sidebar.warning[0].value.replace("\\", "")
    assert not page.button("x_check").disabled


def test_the_form_is_in_the_address_and_a_link_restores_it(open_page):
    page = open_page(TINY)
    assert {key: page.query_params[f"x_{key}"] for key in TINY} == TINY
    page.slider("x_batch").set_value(2).run()
    assert page.query_params["x_batch"] == "2"


FAILING = look(
    point("standard", 512, answer(5.7e-3), CONTROL),
    point("flash", 512, answer(None, "fail", text="holds 7 numbers that are not finite; first at (batch 0, seq 3)"), CONTROL),
    seqs=(512,), recorded=True, device=H200,
)  # fmt: skip


def test_a_recorded_run_is_shown_and_marked_wherever_a_number_stands(open_page):
    edge = look(
        *(
            point(path, 128, *(Finding(what=name, verdict="pass", values={"got": 1.0, "right": 1.0}) for name in edges.WHY))
            for path in ("standard", "flash")
        ),
        task="edges", seqs=(128,), recorded=True, device=H200,
    )  # fmt: skip
    page = open_page({"show": "NVIDIA H200"}, recorded=(exactness(recorded=True, device=H200), edge))
    assert page.selectbox("x_show").options == ["Measure on this machine", "Recorded on NVIDIA H200"]
    assert "2.6× closer to the truth than standard attention (2.2e-3 against 5.7e-3)" in said(page)
    headline = unescape(page.get("html")[0].value)
    assert MARK in headline and MARK in figure(page)["layout"]["xaxis"]["title"]["text"]
    assert said(page).count(MARK) >= 3
    assert list(tables(page)[2]["got"]) == [1.0, 1.0]
    assert page.button("x_check").disabled and page.slider("x_recorded_batch").disabled


def test_a_failure_is_in_the_headline_the_picture_and_the_table(open_page):
    page = open_page({"show": "NVIDIA H200"}, recorded=(FAILING,))
    assert "1 of 2 answers FAIL, the first is flash in bfloat16 at 512: O." in said(page)
    assert ":red-badge[✗ FAIL]" in said(page)
    row = tables(page)[0].query("path == 'flash' and what == 'O'").iloc[0]
    assert (row["verdict"], row["nonfinite"]) == ("✗ FAIL", 7)
    assert "first at (batch 0, seq 3)" in row["text"]
    lost = next(trace for trace in figure(page)["data"] if trace["uid"] == "flash-bfloat16-nonfinite")
    assert lost["x"] == [512]


def test_the_live_page_lists_recorded_sweeps_of_time_only(open_page):
    page = open_page(recorded=(FAILING,), page=None)
    assert page.selectbox("replay").options == ["Measure on this machine"]


@pytest.mark.parametrize("reruns", [1, 3])
def test_what_was_set_on_a_page_is_there_when_the_visitor_comes_back(open_page, reruns):
    page = open_page(page=None)
    page.slider("batch").set_value(3).run()
    page.checkbox("sdpa-math").set_value(True).run()
    dtype, seq = page.session_state["dtype"], page.select_slider("seq").value
    page.switch_page("pages/exactness.py").run()
    page.slider("x_batch").set_value(5).run()
    for _ in range(reruns):
        page.run()
    page.switch_page("pages/live.py").run()
    assert not page.exception
    assert (page.slider("batch").value, page.select_slider("seq").value) == (3, seq)
    assert page.session_state["dtype"] == dtype and page.checkbox("sdpa-math").value
    page.switch_page("pages/exactness.py").run()
    assert page.slider("x_batch").value == 5


def test_the_table_shows_the_picked_sequence_and_a_link_holds_it(open_page):
    page = open_page({"show": "NVIDIA H200", "at": "512"}, recorded=(exactness(recorded=True, device=H200),))
    (picker,) = [box for box in page.selectbox if box.label == "At sequence"]
    assert picker.value == 512
    for seq in (1024, 512, 1024):
        (picker,) = [box for box in page.selectbox if box.label == "At sequence"]
        picker.set_value(seq).run()
        assert page.query_params["at"] == str(seq)


def test_in_a_browser_a_first_visit_to_the_page_checks_and_goes_to_the_live_page_and_back(
    chromium_page, start_app, tmp_path
):
    query = "/exactness?" + "&".join(f"x_{key}={value}" for key, value in TINY.items())
    chromium_page.goto(start_app(ROOT / "app.py", query=query))
    check = chromium_page.locator(".st-key-x_check button:enabled").first
    check.click()
    headline = chromium_page.get_by_test_id("stHtml").locator("p").first
    headline.filter(has_text="both agree with float64").wait_for(timeout=90_000)
    chart = chromium_page.locator(".attnlab-chart")
    chart.locator(".point").nth(3).wait_for()
    box = chart.bounding_box()
    if hasattr(st, "grid"):  # Streamlit 1.65, the last for Python 3.10, pads the page more
        assert box["y"] + box["height"] <= 720, "the picture belongs on the first screen of a small projector"
    chromium_page.get_by_role("link", name="Live lab").click()
    chromium_page.locator(".st-key-run button").first.wait_for()
    chromium_page.get_by_role("link", name="Exactness").click()
    headline.filter(has_text="both agree with float64").wait_for()
    chromium_page.wait_for_url("**/exactness?*x_seq=256*")
