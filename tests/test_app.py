"""The page through AppTest: the real lab and store, with a worker that computes nothing (fake_worker.py) or the real.

AppTest does not fire `run_every`, so a test that waits runs the page again and again, as the fragments would.
"""

import json
import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from conftest import figure_of
from streamlit.testing.v1 import AppTest

from attnlab import units
from attnlab.device import Device
from attnlab.devices import Choice
from attnlab.installed import lacks
from attnlab.lab import Lab
from attnlab.measurement import Measurement
from attnlab.paths import PATHS
from attnlab.presets import PRESETS
from attnlab.problem import ALIGNMENT
from attnlab.run import Run, Snapshot, WorkerState
from attnlab.store import Store
from attnlab.sweep import default_sweep
from attnlab.ui import chart, controls, link, onepoint, shared_runs, shell, status, viewers
from attnlab.ui.controls import Form
from attnlab.ui.text import escape

ROOT = Path(__file__).resolve().parents[1]
TINY = {"batch": "1", "seq": "256", "heads": "2", "head_dim": "32", "dtype": "float32", "direction": "forward"}
QUICK = {**TINY, "within": "5"}  # for the real worker: the times of a busy machine are not sharp for long
LIMIT_S = 60.0


@pytest.fixture
def open_page(private_home, monkeypatch):
    """open_page(link, fake={…}) → the page after its first runs; `fake` is FAKE_WORKER's mode, `real` the real worker."""
    labs = []

    def open_page(link=None, fake=None, real=False, recorded=None, refused=()):
        command = None if real else [sys.executable, "-u", str(ROOT / "tests/fake_worker.py")]
        monkeypatch.setenv("FAKE_WORKER", json.dumps(fake or {}))
        if not labs:
            labs.append(Lab(Store(private_home), worker_command=command))
        monkeypatch.setattr(shell, "lab", lambda: labs[0])
        monkeypatch.setattr(shell, "recorded_runs", lambda: (recorded or {}, list(refused)))
        page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        for key, value in (link or {}).items():
            page.query_params[key] = value
        page.run()
        assert not page.exception and not page.dataframe
        page.run()  # the table comes a moment after the first paint
        assert not page.exception
        return page

    open_page.labs = labs
    yield open_page
    for lab in labs:
        lab.close()


@pytest.fixture
def held(tmp_path):
    """(a mode of the fake worker, go): a run stands still before its fourth point until the file `go` is there."""
    go = tmp_path / "go"
    return {"hold": {"at": ["flash", 256], "file": str(go)}}, go


def until(page, ready):
    """Runs the page until `ready(page)`."""
    limit = time.monotonic() + LIMIT_S
    while not ready(page):
        assert time.monotonic() < limit, f"the page still says {status_line(page)!r}"
        time.sleep(0.05)
        page.run()
        assert not page.exception
    return page


def status_line(page):
    return page.main.markdown[1].value


def measured(page):
    return status_line(page).startswith("Measured")


def sentence(page):
    return page.get("html")[0].value


def run_of(page):
    """The id of the run that the page shows."""
    return page.session_state[shared_runs.MINE].run_id


def table(page):
    return page.dataframe[1].value


def figure(page, key):
    (chart,) = [chart for chart in page.get("bidi_component") if chart.key == key]
    return figure_of(chart)


def curve(page, key, path):
    (line,) = [trace for trace in figure(page, key)["data"] if trace["uid"] == f"{path}-line"]
    return dict(zip(line["x"], line["y"], strict=True))


def shape(page):
    sliders = {key: page.slider(key).value for key in ("batch", "heads")}
    selects = {key: page.select_slider(key).value for key in ("seq", "head_dim")}
    return {**sliders, **selects, "dtype": page.session_state["dtype"], "direction": page.session_state["direction"]}


def recorded_run():
    sweep = default_sweep("cuda")
    device = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-1", total_bytes=1 << 37, free_bytes=1 << 37)
    points = tuple(
        Measurement(problem=sweep.problem.at_seq(seq), path=path, status="ok", device_ms=ms * seq, peak_bytes=seq << 10)
        for path, ms in (("standard", 3.0), ("flash", 1.0))
        for seq in sweep.seqs
    )
    return Run(
        id="recorded", sweep=sweep, state="done", created="2026-11-30T10:00:00+00:00", device=device,
        measurements=points, recorded=True,
    )  # fmt: skip


# The form


def test_where_tabs_take_turns_all_see_their_charts_before_one_sees_what_is_below_them(open_page, monkeypatch):
    page, drawn, draw = open_page(), [], chart.plotly_chart
    monkeypatch.setattr(chart, "plotly_chart", lambda *of, key, **how: (drawn.append(key), draw(*of, key=key, **how)))
    monkeypatch.setattr(viewers, "others_first", lambda: drawn.append("others"))
    page.run()
    assert not page.exception
    assert drawn[:5] == ["latency", "memory", "speedup", "others", "efficiency"]


def test_the_sliders_have_the_ranges_of_the_project(open_page):
    page = open_page()
    assert [(s.key, s.min, s.max) for s in page.slider] == [("batch", 1, 64), ("heads", 1, 128)]
    assert page.select_slider("seq").options == [str(128 << i) for i in range(11)]
    assert page.select_slider("head_dim").options == ["32", "64", "96", "128", "192", "256"]
    assert ALIGNMENT in [caption.value for caption in page.sidebar.caption]


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_defaults_fit_the_device(open_page, kind):
    page = until(open_page(fake={"kind": kind}), lambda page: run_of(page))
    assert shape(page) == link.shape_values(default_sweep(kind))


def test_a_link_wins_over_the_defaults_of_the_device(open_page):
    page = open_page({"batch": "1", "seq": "512", "heads": "6"}, fake={"kind": "cuda"})
    until(page, lambda page: run_of(page))
    defaults = link.shape_values(default_sweep("cuda"))
    assert shape(page) == {**defaults, "batch": 1, "seq": 512, "heads": 6}


def test_a_link_means_one_shape_on_every_machine(open_page):
    """What is missing in an address that the page wrote is the widget's smallest value, not the device's default."""
    page = open_page({"seq": "512", "dtype": "float16", "direction": "forward"}, fake={"kind": "cuda"})
    until(page, lambda page: run_of(page))
    assert shape(page) == {
        "batch": 1, "seq": 512, "heads": 1, "head_dim": 32, "dtype": "float16", "direction": "forward",
    }  # fmt: skip


@pytest.mark.parametrize("chosen", [{}, {"heads": 8, "causal": True, "sdpa-math": True}])
def test_a_browser_that_lost_the_form_is_told_again(open_page, chosen):
    """As one does that never got the message with what was seeded: it names no dtype, and of the rest the declared default.
    Taken at its word, one of 25 browsers measured a sweep of one point that nobody had asked for."""
    page = until(open_page({"live": "false"}, fake={"kind": "cuda"}), lambda page: not page.button("run").disabled)
    for key, value in chosen.items():
        page.session_state[key] = value
    page.run()
    before = {key: page.session_state[key] for key in (*link.form_values(default_sweep("cuda")), "sdpa-math", "within")}
    declared = {"batch": 1, "seq": 128, "heads": 1, "head_dim": 32, "causal": False, "sdpa-math": False}
    for lost in (("dtype",), ("direction",), ("dtype", "direction", *declared)):
        for key in lost:
            page.session_state[key] = declared.get(key)
        page.run()
        assert not page.exception and {key: page.session_state[key] for key in before} == before
        assert not page.button("run").disabled and "Cannot run" not in status_line(page)
    page.button("run").click().run()
    assert open_page.labs[0].snapshot(run_of(page)).run.sweep.problem.heads == chosen.get("heads", 32)


@pytest.mark.parametrize("lost", ["all", "what came later"])
def test_a_browser_that_missed_what_fits_the_device_is_told_again(open_page, tmp_path, lost):
    """Opened before the device was known, one of 25 browsers measured the CPU's default shape on a GPU."""
    page = open_page({"live": "false"}, fake={"kind": "cuda", "start_file": str(tmp_path / "go")})
    early, fits = shape(page), link.shape_values(default_sweep("cuda"))
    assert early == link.shape_values(default_sweep("cpu"))
    (tmp_path / "go").touch()
    if lost == "all":  # the very run that learns of the device hears that nothing is chosen
        early = {**early, "batch": 1, "seq": 128, "heads": 1, "head_dim": 32, "dtype": None, "direction": None}
        while open_page.labs[0].snapshot().worker.device is None:
            time.sleep(0.01)
    else:
        until(page, lambda page: shape(page) == fits)
    for key, value in early.items():
        page.session_state[key] = value
    page.run()
    assert shape(page) == fits
    for key, value in link.shape_values(default_sweep("cpu")).items():  # one after the other: somebody wants it
        page.session_state[key] = value
        page.run()
    assert shape(page) == link.shape_values(default_sweep("cpu"))


def test_the_address_holds_the_shape_that_was_seeded(open_page):
    page = until(open_page(fake={"kind": "cuda"}), lambda page: run_of(page))
    assert page.query_params["dtype"] == "bfloat16" and page.query_params["seq"] == "16384"
    open_page.labs.pop().close()
    elsewhere = open_page({key: page.query_params[key] for key in page.query_params}, fake={"kind": "cpu"})
    until(elsewhere, lambda page: run_of(page))
    assert shape(elsewhere) == shape(page) == link.shape_values(default_sweep("cuda"))


@pytest.mark.parametrize(
    ("key", "nonsense", "legal"),
    [
        ("batch", "0", "whole numbers from 1 to 64"),
        ("heads", "many", "whole numbers from 1 to 128"),
        ("seq", "1000", "128, 256, 512"),
        ("head_dim", "80", "32, 64, 96, 128, 192, 256"),
        ("dtype", "int8", "bfloat16, float16, float32"),
        ("direction", "sideways", "forward, forward+backward, backward"),
        ("causal", "perhaps", "true, false"),
        ("batch", "<b>*1*</b>", "whole numbers from 1 to 64"),
        ("kv_heads", "--5", "whole numbers from -2,147,483,648"),
        ("budget", "1e999", "whole numbers from 1 to 86,400"),
        ("picked_seq", "1000", "128, 256, 512"),
        ("replay", "nothing", "no run is recorded here"),
        ("clock", "sundial", "device, graph, wall"),
        ("count", "half", "exact, dense"),
        ("window", "0", "whole numbers from 1 to 16,777,216"),
        ("queries", "0", "whole numbers from 1 to 16,777,216"),
        ("queries", "a few", "whole numbers from 1 to 16,777,216"),
        ("lengths", "256,x", "whole numbers with commas between them, one for each sequence of the batch"),
        ("lengths", "-5", "whole numbers with commas between them"),
        ("other_seq", "0", "whole numbers from 1 to 16,777,216"),
        ("other_head_dim", "1025", "whole numbers from 1 to 1,024"),
        ("within", "3", "0.5, 1, 2, 5"),
        ("l2", "warm", "cold, hot"),
    ],
)
def test_nonsense_in_a_link_gets_one_clear_line(open_page, key, nonsense, legal):
    page = open_page({**TINY, key: nonsense})
    (warning,) = page.warning
    said = warning.value.replace("\\", "")
    assert "\n" not in said and f"{key} is {nonsense!r}" in said and legal in said and "None" not in said
    assert not page.exception
    until(page, lambda page: run_of(page))
    page.slider("heads").set_value(3).run()
    assert not page.warning, "old news once the form says something else"


def test_kv_heads_that_do_not_divide_are_refused_in_words(open_page):
    """F09."""
    page = until(open_page({**TINY, "heads": "6"}), measured)
    before, run_id = table(page), run_of(page)
    for heads, kv_heads, legal in ((6, 4, "1, 2, 3, 6"), (4, 8, "1, 2, 4"), (6, 0, "1, 2, 3, 6")):
        page.slider("heads").set_value(heads)
        page.number_input("kv_heads").set_value(kv_heads).run()
        said = page.error[0].value.replace("\\", "")
        assert f"kv_heads is {kv_heads}" in said and f"legal for {heads} heads: {legal}" in said
        assert page.button("run").disabled
        assert run_of(page) == run_id, "nothing was submitted"
        assert table(page).equals(before), "the previous results stay"
    page.number_input("kv_heads").set_value(3).run()
    until(page, measured)
    assert not page.error and run_of(page) != run_id


def test_no_path_is_refused_in_words(open_page):
    page = open_page(TINY)
    page.checkbox("standard").uncheck()
    page.checkbox("flash").uncheck().run()
    assert "no path to measure" in page.error[0].value and page.button("run").disabled


def test_a_missing_path_is_greyed_out_with_its_reason(open_page):
    page = until(open_page({**TINY, "live": "false"}, real=True), lambda page: not page.button("run").disabled)
    assert [box.key for box in page.checkbox] == list(PATHS)
    missing = page.checkbox("flash-attn-3")
    assert missing.disabled and "missing" in missing.label
    (here,) = [path for path in open_page.labs[0].snapshot().worker.paths if path.name == "flash-attn-3"]
    assert here.reason and here.reason in missing.help
    assert not page.checkbox("sdpa-math").disabled


# Runs


def test_a_tiny_run_on_the_real_worker_ends_with_both_curves(open_page):
    page = until(open_page({**QUICK, "dtype": "bfloat16"}, real=True), measured)  # a dtype that flash takes everywhere
    for path in ("standard", "flash"):
        assert all(ms > 0 for ms in curve(page, "latency", path).values())
        assert all(size > 0 for size in curve(page, "memory", path).values())
    assert set(curve(page, "speedup", "flash")) == {128, 256} and None not in curve(page, "speedup", "flash").values()
    assert list(table(page)["status"]) == ["ok"] * 4
    assert "flash is" in sentence(page) or "too short to compare" in sentence(page)  # on a fast GPU it is
    assert all(metric.label.endswith(" at 256") for metric in page.metric) and len(page.metric) == 4
    assert "--seqs 128,256" in page.code[0].value


def test_live_a_change_cancels_the_run_and_starts_the_new_one(open_page, held):
    fake, go = held
    page = open_page({**TINY, "seq": "4096", "dtype": "bfloat16"}, fake)
    until(page, lambda page: status_line(page).startswith("Measuring"))
    first = run_of(page)
    page.slider("heads").set_value(4).run()
    second = run_of(page)
    lab = open_page.labs[0]
    assert lab.snapshot(first).run.state == "cancelled"
    assert lab.snapshot(second).run.sweep.problem.heads == 4
    go.touch()
    until(page, measured)
    assert set(table(page)["status"]) == {"ok"}


def test_not_live_a_change_waits_and_the_running_sweep_finishes(open_page, held):
    """F23."""
    fake, go = held
    page = open_page({**TINY, "heads": "16", "seq": "4096", "live": "false"}, fake)
    until(page, lambda page: not page.button("run").disabled)
    assert run_of(page) is None, "nothing runs before it is asked for"
    page.button("run").click().run()
    first = run_of(page)
    until(page, lambda page: len(table(page)) >= 2)
    page.slider("heads").set_value(8).run()
    assert "the form differs from the run shown" in status_line(page) and "heads 16" in status_line(page)
    assert page.button("run").label == "Queue" and not page.button("stop").disabled
    page.button("run").click().run()
    assert run_of(page) == first, "the running one stays in view"
    go.touch()
    until(page, lambda page: run_of(page) != first)
    run = open_page.labs[0].snapshot(first).run
    assert run.state == "done" and len(run.measurements) == 12
    assert {m.problem.heads for m in run.measurements} == {16}
    until(page, measured)
    assert open_page.labs[0].snapshot(run_of(page)).run.sweep.problem.heads == 8


@pytest.fixture
def tab(monkeypatch):
    """tab(name): whose page runs from now on. To AppTest all of them are one session."""
    now = []
    monkeypatch.setattr(shared_runs, "_me", lambda: now[-1])
    return now.append


def test_a_slider_of_one_tab_ends_no_run_that_another_one_watches(open_page, tab, held):
    link, (fake, go) = {**TINY, "seq": "4096"}, held
    tab("first")
    first = until(open_page(link, fake), lambda page: run_of(page))
    tab("second")
    second = until(open_page(link, fake), lambda page: run_of(page))
    shared, lab = run_of(first), open_page.labs[0]
    assert run_of(second) == shared
    second.slider("heads").set_value(4).run()
    own = run_of(second)
    assert lab.snapshot(shared).run.active and lab.snapshot().queue == (own,)
    go.touch()
    tab("first")
    until(first, measured)
    assert lab.snapshot(shared).run.state == "done" and len(table(first)) == 12
    tab("second")
    until(second, measured)
    assert {m.problem.heads for m in lab.snapshot(own).run.measurements} == {4}


GOING_ON = {"window": "9", "try_oom": "true", "flash": "false", "sdpa-math": "true", "budget": "7", "within": "5"}


@pytest.mark.parametrize(
    ("more", "said", "joins"),
    [
        ({}, {}, True),
        (GOING_ON, {}, True),
        (GOING_ON, {"clock": "wall"}, True),
        (GOING_ON, {"batch": "2"}, False),
    ],
)
def test_a_tab_that_names_no_sweep_watches_the_one_that_runs(open_page, tab, more, said, joins):
    tab("first")
    fake = {"delay_s": 0.2, "kind": "cuda"}
    first = until(open_page({**TINY, "seq": "2048", "other_seq": "3000", **more}, fake), lambda page: run_of(page))
    tab("second")
    second = until(open_page(said, fake), lambda page: run_of(page))
    lab = open_page.labs[0]
    assert (run_of(second) == run_of(first)) is joins and len(lab.store.recent(9)) == 2 - joins
    if joins:
        there = {key: value for key, value in second.query_params.items() if key not in ("clock", "live")}
        elsewhere = until(open_page(there, fake), lambda page: run_of(page))
        assert run_of(elsewhere) == run_of(first), "its address says the same"


def test_a_sweep_that_the_form_cannot_ask_for_is_not_joined(open_page):
    fake = {"delay_s": 0.2, "kind": "cpu"}
    lab = open_page({"live": "false"}, fake) and open_page.labs[0]
    for change in ({"seqs": (128, 640)}, {"precision": 0.3}, {"budget_s": 0.5}, {"task": "exactness"}, {"refine": False}):
        assert controls.values_for(replace(default_sweep("cpu"), **change)) is None
    wide = default_sweep("cpu")
    wide = replace(wide, problem=replace(wide.problem, batch=65))
    assert controls.values_for(wide) is None
    going_on = lab.submit(wide)
    page = until(open_page(fake=fake), lambda page: run_of(page))
    assert lab.snapshot(going_on).run.active and lab.snapshot().queue == (run_of(page),)
    assert shape(page) == link.shape_values(default_sweep("cpu"))


def test_run_pressed_while_this_very_sweep_runs_does_not_start_it_over(open_page, held):
    fake, go = held
    page = open_page({**TINY, "seq": "4096"}, fake)
    until(page, lambda page: len(table(page)) >= 2)
    run_id = run_of(page)
    page.button("run").click().run()
    assert run_of(page) == run_id and open_page.labs[0].snapshot(run_id).run.active
    go.touch()
    until(page, measured)


def test_queueing_again_replaces_what_was_queued(open_page):
    page = open_page({**TINY, "seq": "4096", "dtype": "bfloat16", "live": "false"}, fake={"delay_s": 0.3})
    until(page, lambda page: not page.button("run").disabled)
    page.button("run").click().run()
    for heads in (3, 4, 5):
        page.slider("heads").set_value(heads).run()
        page.button("run").click().run()
    lab = open_page.labs[0]
    assert len(lab.snapshot().queue) == 1
    page.button("stop").click().run()
    assert not lab.snapshot().queue and not lab.snapshot(run_of(page)).run.active


def test_a_missing_path_that_a_link_has_ticked_can_be_unticked(open_page):
    fake = {"missing": ["sdpa-cudnn", "flash-attn-3"]}
    page = until(open_page({**TINY, "sdpa-cudnn": "true", "live": "false"}, fake=fake), lambda page: page.checkbox)
    until(page, lambda page: "missing" in page.checkbox("sdpa-cudnn").label)
    page.session_state["sdpa-cudnn"] = True  # AppTest does not fill a box from the link
    page.run()
    ticked, other = page.checkbox("sdpa-cudnn"), page.checkbox("flash-attn-3")
    assert ticked.value and not ticked.disabled and other.disabled


def test_stop_ends_the_run_and_nothing_starts_by_itself(open_page):
    page = open_page({**TINY, "seq": "4096"}, fake={"delay_s": 0.2})
    until(page, lambda page: len(table(page)) >= 2)
    run_id = run_of(page)
    page.button("stop").click().run()
    page.run()
    assert run_of(page) == run_id
    assert status_line(page).startswith("Cancelled") and page.button("stop").disabled
    assert len(table(page)) >= 2, "what was measured stays"


def test_a_stored_answer_is_shown_at_once_and_can_be_measured_again(open_page):
    page = until(open_page(TINY), measured)
    created = open_page.labs[0].snapshot(run_of(page)).run.created
    again = open_page(TINY)
    assert measured(again) and "just now" in status_line(again)
    assert open_page.labs[0].snapshot(run_of(again)).run.created == created
    again.button("again").click().run()
    until(again, measured)
    assert open_page.labs[0].snapshot(run_of(again)).run.created > created


def test_a_reload_while_something_is_measured_again_shows_what_is_measured(open_page, held):
    fake, go = held
    go.touch()
    page = until(open_page(TINY, fake), measured)
    go.unlink()
    page.button("again").click().run()
    reloaded = open_page(TINY)
    assert run_of(reloaded) == run_of(page) and not reloaded.button("stop").disabled
    go.touch()
    until(reloaded, measured)


def test_what_has_no_number_stands_in_the_table_with_its_reason(open_page):
    page = until(open_page(TINY, fake={"oom_at": ["standard", 256], "kind": "cuda"}), measured)
    rows = table(page).set_index(["path", "seq"])
    row = rows.loc[("standard", 256)]
    assert row["status"] == "oom" and row["reason"]
    assert rows["device_ms"].isna().sum() == 1 and rows["peak_mib"].isna().sum() == 1
    page.selectbox[1].select(256).run()
    assert page.metric[0].delta == "out of memory"
    assert page.metric[2].delta == "–"
    assert curve(page, "latency", "standard")[256] is None


def test_the_four_figures_are_those_of_the_points(open_page):
    """Of a recorded run whose times are 3 and 1 ms for each key, and whose memory is equal."""
    page = open_page({"replay": "h200", "picked_seq": "128"}, recorded={"h200": recorded_run()})
    assert [metric.value for metric in page.metric] == [units.ms(49_152), units.ms(16_384), "3.0×", "1.0× less"]
    assert [metric.delta for metric in page.metric] == ["384 ms", "128 ms", "3.0×", "1.0× less"]
    assert [metric.label for metric in page.metric] == [
        ":orange[standard] at 16,384", ":blue[flash] at 16,384", "Speed-up at 16,384", "Memory at 16,384",
    ]  # fmt: skip
    page.selectbox[1].select(1024).run()
    assert page.metric[0].delta == units.ms(3072) and page.query_params["picked_seq"] == "1024"


def test_a_worker_that_cannot_start_is_said_in_words(open_page):
    page = open_page(TINY, fake={"fatal_at_start": True})
    until(page, lambda page: "The worker failed" in page.main.markdown[0].value)


def test_a_restart_of_the_worker_is_seen_and_the_run_goes_on(open_page):
    page = open_page({**TINY, "seq": "512"}, fake={"die_at": ["flash", 256], "start_s": 1.0})
    until(page, lambda page: "restarting the GPU worker" in status_line(page))
    until(page, measured)
    lost = table(page).query("status == 'fault'")
    assert list(lost["seq"]) == [256] and "signal 9, killed" in lost["reason"].iloc[0]
    assert "lower batch or sequence, then measure again" in lost["reason"].iloc[0]


def test_points_that_no_worker_came_back_for_are_one_row_and_one_sentence(open_page, tmp_path):
    lost = {"how": "torch", "file": str(tmp_path / "lost"), "at": ["flash", 256]}
    page = open_page({**TINY, "seq": "1024"}, fake={"lost": lost})
    until(page, lambda page: status_line(page).startswith("Failed"))
    said = status_line(page).replace("\\", "")
    assert "the worker cannot start, tried 3 times: PyTorch cannot be loaded" in said and "pip install -r" in said
    assert "4 points were not reached (the worker cannot start" in sentence(page)
    rows = table(page)
    assert list(rows["status"]) == ["ok", "ok", "ok", "fault", "unreached"]
    assert rows["path"].iloc[-1] == "all others" and rows["reason"].iloc[-1].startswith("4 points were not reached")


# The clocks, the rates, one point


def facts(page):
    """{what: value} of the panel "One point"."""
    found = re.findall(r"<dt[^>]*>(.*?)</dt><dd[^>]*>(.*?)</dd>", page.get("html")[1].value)
    return {name: unescape(value) for name, value in found}


def remarks(page):
    return next(said.value for said in page.main.markdown if "made up" in said.value).replace("\\", "")


def test_the_clock_switches_the_curves_and_not_the_sentence(open_page):
    page = until(open_page(TINY, fake={"no_graph_at": ["flash", 256]}), measured)
    said = [sentence(page), *(metric.value for metric in page.metric)]
    device = curve(page, "latency", "standard")
    page.session_state["clock"] = "wall"
    page.run()
    assert curve(page, "latency", "standard") == {seq: 2 * ms for seq, ms in device.items()}
    page.session_state["clock"] = "graph"
    page.run()
    assert curve(page, "latency", "flash")[256] is None and curve(page, "latency", "flash")[128] > 0
    assert curve(page, "speedup", "flash")[256] is None
    assert [sentence(page), *(metric.value for metric in page.metric)] == said


def test_the_count_of_the_work_can_be_chosen_where_pairs_are_masked(open_page):
    page = until(open_page({**TINY, "dtype": "bfloat16"}), measured)
    assert page.segmented_control("count").disabled
    page.toggle("causal").set_value(True).run()
    until(page, measured)
    exact = curve(page, "efficiency", "flash")
    page.segmented_control("count").set_value("dense").run()
    dense = curve(page, "efficiency", "flash")
    assert dense[256] / exact[256] == pytest.approx(2 * 256 / 257)
    assert "dense count" in figure(page, "efficiency")["layout"]["title"]["text"]


def test_the_panel_shows_the_longest_flash_point_until_another_is_chosen(open_page):
    page = until(open_page(TINY, fake={"outlier_at": ["standard", 128]}), measured)
    panel = {box.label: box for box in page.selectbox if box.label in ("Path", "Sequence")}
    assert (panel["Path"].value, panel["Sequence"].value) == ("flash", 256)
    row = table(page).set_index(["path", "seq"]).loc[("flash", 256)]
    assert facts(page)["Median"] == units.ms(row["device_ms"]) and facts(page)["Wall"] == units.ms(row["wall_ms"])
    assert facts(page)["Clock"] == "1,900 MHz (1,890 to 1,980)" and facts(page)["L2 cache"] == "cold"

    panel["Path"].select("standard")
    panel["Sequence"].select(128).run()
    assert facts(page)["Samples"].endswith(" + 1 left out")
    assert "1 sample kept out: it says something else" in remarks(page)
    order, bars = figure(page, "point_order"), figure(page, "point_samples")
    hollow = next(trace for trace in order["data"] if trace["uid"] == "unused")
    assert len(hollow["x"]) == 1 and "left out of the median" in hollow["hovertext"][0]
    assert "1 left out" in order["layout"]["title"]["text"]
    used = next(trace for trace in bars["data"] if trace["uid"] == "used")
    assert hollow["y"][0] not in used["x"] and len(used["x"]) == table(page)["samples"].iloc[0]
    assert bars["layout"]["shapes"][1]["x0"] == table(page)["device_ms"].iloc[0]


def test_an_interval_is_said_in_percent_of_the_median():
    m = replace(recorded_run().measurements[0], device_ms=2.0, device_ms_low=1.9, device_ms_high=2.1, samples=30)
    said = dict(onepoint.facts(m))
    assert said["95 % interval"] == "1.90 ms to 2.10 ms" and said["Its half width"] == "±5.0 %"
    assert said["Clock"] == said["Lowered by"] == said["CUDA graph"] == "–" and said["Samples"] == "30"
    assert dict(onepoint.facts(replace(m, clock_mhz=1900.0, clock_mhz_low=1890.0)))["Lowered by"] == "nothing"


def test_places_of_few_samples_are_whole_numbers():
    m = replace(recorded_run().measurements[0], unused=())
    steps = [
        onepoint.in_order(replace(m, samples_ms=(1.0,) * n), m.path)["layout"]["xaxis"].get("dtick") for n in (3, 30)
    ]
    assert steps == [1, None], "Plotly would say 1, 2, 2, 3, 3"


def test_a_point_without_a_number_has_a_panel_too(open_page):
    page = until(open_page(TINY, fake={"oom_at": ["standard", 256]}), measured)
    page.session_state[onepoint.PICKED] = ("standard", 256)
    page.run()
    assert facts(page)["Status"] == "out of memory" and facts(page)["Median"] == "–"
    assert "no samples" in json.dumps(figure(page, "point_samples"))
    assert any("fake oom" in said.value for said in page.main.markdown)


def test_a_picked_point_that_another_run_lacks_is_not_shown(open_page):
    page = until(open_page(TINY), measured)
    page.session_state[onepoint.PICKED] = ("flash", 128)
    page.run()
    page.checkbox("flash").uncheck().run()
    until(page, measured)
    assert [box.value for box in page.selectbox if box.label in ("Path", "Sequence")] == ["standard", 256]


@pytest.mark.parametrize(
    "said", [None, {}, ["flash", 128], ["flash", "128", 0], ["flash", 1.0, 0], ["nobody", 128, 1], ["flash", 129, 1]]
)
def test_what_a_browser_says_of_a_click_is_not_trusted(monkeypatch, said):
    state = {"chart": {"point": said}}
    monkeypatch.setattr(chart.st, "session_state", state)
    if clicked := chart.new_click("chart"):
        onepoint.pick(recorded_run(), *clicked)
    assert onepoint.PICKED not in state


def test_an_old_click_that_comes_late_is_no_new_one(monkeypatch):
    state = {}
    monkeypatch.setattr(chart.st, "session_state", state)
    heard = []
    for point in (["flash", 128, 3], ["flash", 256, 2], ["flash", 128, 3], ["flash", 512, 4]):
        state["chart"] = {"point": point}
        heard.append(chart.new_click("chart"))
    assert heard == [("flash", 128), None, None, ("flash", 512)]


def test_the_ladder_has_every_path_fastest_first_and_says_why_one_is_missing(open_page):
    page = until(open_page(fake={"missing": ["flash-attn-3"]}), measured)
    ladder = page.dataframe[0].value
    assert set(ladder["path"]) == set(PATHS)
    assert list(ladder["path"][:2]) == ["flash", "standard"] and list(ladder["place"][:2]) == [1, 2]
    notes = dict(zip(ladder["path"], ladder["note"], strict=True))
    assert "missing: not here" in notes["flash-attn-3"] and "tick it" in notes["sdpa-math"]
    assert any("fastest first" in said.value for said in page.caption)


def test_the_table_has_the_clocks_and_marks_one_that_moved(open_page):
    page = until(open_page(TINY, fake={"throttle_at": ["standard", 128]}), measured)
    rows = table(page).set_index(["path", "seq"])
    assert (rows["graph_ms"] == 1.02 * rows["device_ms"]).all() and (rows["host_ms"] == 0.004).all()
    assert set(rows["l2"]) == {"cold"} and (rows["dense_tflops"] == rows["tflops"]).all()
    slow = rows.loc[("standard", 128)]
    assert slow["clock_moved"] == "⚠ 1,200 to 1,980 MHz" and slow["throttle"] == "power cap"
    assert set(rows.drop(index=("standard", 128))["clock_moved"]) == {""}


def test_more_of_the_sweep_is_in_the_form(open_page):
    page = until(open_page(TINY), measured)
    page.number_input("window").set_value(64)
    page.number_input("queries").set_value(1)
    page.segmented_control("within").set_value("5")
    page.segmented_control("l2").set_value("hot")
    page.run()
    sweep = open_page.labs[0].snapshot(run_of(page)).run.sweep
    assert (sweep.problem.window, sweep.seq_q, sweep.precision, sweep.l2) == (64, 1, 0.05, "hot")
    assert "hot L2" in figure(page, "latency")["layout"]["title"]["text"]


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_preset_fills_the_form_and_the_run_is_that_of_the_preset(open_page, preset):
    page = open_page({**TINY, "live": "false", "window": "9"}, fake={"kind": "cuda"})
    until(page, lambda page: not page.button("run").disabled)
    page.selectbox("preset").select(preset.name).run()
    page.button("run").click().run()
    run = open_page.labs[0].snapshot(run_of(page)).run
    assert run.sweep == preset.sweep()
    assert not page.error and not page.exception and page.selectbox("preset").value is None


def test_what_a_preset_filled_in_stays_editable_and_the_address_reproduces_it(open_page):
    page = open_page({**TINY, "live": "false"}, fake={"kind": "cuda"})
    until(page, lambda page: not page.button("run").disabled)
    page.selectbox("preset").select("vit-l-16").run()
    assert page.number_input("other_seq").value == 197 and page.select_slider("seq").disabled
    page.slider("heads").set_value(8)
    page.number_input("other_head_dim").set_value(80).run()
    page.button("run").click().run()
    sweep = open_page.labs[0].snapshot(run_of(page)).run.sweep
    assert (sweep.seqs, sweep.problem.heads, sweep.problem.head_dim) == ((128, 197), 8, 80)
    address = {name: str(value) for name, value in link.form_values(sweep).items() if value is not None}
    again = open_page({**address, "live": "false"}, fake={"kind": "cuda"})
    until(again, lambda page: not page.button("run").disabled)
    again.button("run").click().run()
    assert open_page.labs[0].snapshot(run_of(again)).run.sweep == sweep
    page.number_input("other_seq").set_value(None).run()
    assert not page.select_slider("seq").disabled


def test_a_padded_batch_in_the_form_is_measured_or_refused_in_words(open_page):
    page = until(open_page({**TINY, "batch": "2"}), measured)
    before, run_id = table(page), run_of(page)
    for text, words in (
        (
            "256",
            "lengths has 1 for a batch of 2; legal: one whole number from 0 to 256 for each sequence of the batch (2)",
        ),
        ("256, x", "lengths is '256, x'; legal: whole numbers with commas between them, one for each sequence"),
        ("256, 300", "lengths holds 300"),
        ("0, 0", "lengths are all 0"),
    ):
        page.text_input("lengths").set_value(text).run()
        (refusal,) = page.error
        assert words in refusal.value.replace("\\", "") and "\n" not in refusal.value
        assert run_of(page) == run_id and table(page).equals(before)
        assert page.text_input("lengths").value == text, "what was typed stays"
    page.text_input("lengths").set_value("256, 100")
    page.segmented_control("direction").set_value("backward").run()
    until(page, measured)
    sweep = open_page.labs[0].snapshot(run_of(page)).run.sweep
    assert sweep.problem.lengths == (256, 100) and sweep.problem.direction == "backward"
    assert "--lengths 256,100 --direction backward" in page.code[0].value
    page.number_input("queries").set_value(7).run()
    assert "lengths need self-attention, and seq_q is 7" in page.error[0].value.replace("\\", "")


def test_any_number_of_queries_is_cross_attention(open_page):
    page = until(open_page({**TINY, "queries": "7"}), measured)
    assert open_page.labs[0].snapshot(run_of(page)).run.sweep.seq_q == 7
    assert "--seq-q 7" in page.code[0].value
    page.number_input("queries").set_value(0).run()
    assert "seq_q is 0; legal: whole numbers from 1" in page.error[0].value.replace("\\", "")


@pytest.mark.parametrize("key", ["other_seq", "other_head_dim"])
def test_another_length_or_head_dim_that_cannot_be_is_refused_in_words(open_page, key):
    page = open_page(TINY)
    for value in (0, -3, 1 << 25):
        page.number_input(key).set_value(value).run()
        said = page.error[0].value.replace("\\", "")
        assert f" is {value}; legal: whole numbers from 1 to" in said and not page.exception


def test_the_curves_are_put_in_words(open_page):
    page = open_page({"replay": "h200"}, recorded={"h200": recorded_run()})
    texts = [said.value.replace("\\", "") for said in page.main.markdown]
    (title,) = [at for at, said in enumerate(texts) if "What the curves say" in said]
    assert "recorded on" in texts[title]
    assert any("time grows as s^1.00 for standard" in said for said in texts[title:])


# Recorded runs


def test_a_recorded_run_is_marked_wherever_a_number_of_it_stands(open_page):
    run = recorded_run()
    page = open_page({"replay": "h200"}, fake={"kind": "cpu"}, recorded={"h200": run})
    mark = "recorded on NVIDIA H200, 2026-11-30"
    assert mark in sentence(page) and mark in status_line(page)
    for key in ("latency", "memory", "speedup"):
        assert mark in json.dumps(figure(page, key)["layout"])
    assert all(mark[1:] in metric.help for metric in page.metric)
    assert [metric.proto.delta_description for metric in page.metric] == ["at 2,048, recorded"] * 4
    form = [page.slider("recorded_batch"), page.select_slider("recorded_seq"), page.slider("recorded_heads")]
    assert [(slider.value, slider.disabled) for slider in form] == [(4, True), (16_384, True), (32, True)]
    assert page.button("run").disabled
    assert run_of(page) is None, "nothing is measured meanwhile"
    page.selectbox("replay").select_index(0).run()
    until(page, measured)
    assert mark not in sentence(page)


def test_a_recorded_run_may_lie_outside_the_sliders(open_page):
    run = recorded_run()
    odd = replace(run.sweep.problem, batch=100, heads=200, kv_heads=100, head_dim=80)
    odd = replace(odd, window=300)
    swept = {"seqs": (1000,), "budget_s": 0.2, "seq_q": 7, "precision": 0.003, "l2": "hot"}
    run = replace(run, sweep=replace(run.sweep, problem=odd, **swept), measurements=(), device=None)
    page = open_page({"replay": "odd"}, fake={"kind": "cpu"}, recorded={"odd": run})
    assert "recorded on unknown device" in status_line(page)
    assert page.slider("recorded_batch").value == 100 and page.select_slider("recorded_seq").value == 1000
    assert page.number_input("recorded_kv_heads").value == 100 and page.number_input("recorded_window").value == 300
    more = [page.segmented_control(f"recorded_{key}") for key in ("within", "l2")]
    assert [(control.value, control.disabled) for control in more] == [("0.3", True), ("hot", True)]
    queries = page.number_input("recorded_queries")
    assert (queries.value, queries.disabled) == (7, True) and page.selectbox("recorded_preset").disabled


def test_the_form_of_the_live_page_comes_back_after_a_recorded_run(open_page):
    page = until(open_page(TINY, recorded={"h200": recorded_run()}), measured)
    page.slider("heads").set_value(7).run()
    page.selectbox("replay").select_index(1).run()
    assert page.slider("recorded_heads").value == 32 and page.query_params["replay"] == "h200"
    page.selectbox("replay").select_index(0).run()
    assert shape(page)["heads"] == 7 and "replay" not in page.query_params


def test_what_cannot_be_read_or_kept_is_one_quiet_line(open_page):
    page = until(open_page(TINY, refused=["bad.json: this is no run"]), measured)
    assert "bad.json: this is no run" in page.main.markdown[0].value.replace("\\", "")
    open_page.labs[0].store._keeper.problem = "runs are kept in memory and are lost when the program ends"
    page.run()
    assert "are lost when the program ends" in page.main.markdown[0].value and not page.exception


@pytest.mark.parametrize(
    ("there", "words"),
    [("newer", "written by a newer AttnLab"), ("damaged", "was damaged"), ("full", "cannot be written any more"),
     ("no folder", "cannot be used")],
)
def test_the_page_runs_on_without_a_history_and_says_why(open_page, private_home, there, words):
    if there == "no folder":  # as on a system that may only be read
        private_home.write_text("")
    else:
        private_home.mkdir()
    if there == "newer":
        with sqlite3.connect(private_home / "attnlab.db") as db:
            db.execute("PRAGMA user_version = 999")
    if there == "damaged":
        (private_home / "attnlab.db").write_bytes(b"no database" * 1000)
    before = {path.read_bytes() for path in private_home.rglob("*")}
    page = until(open_page(TINY), measured)
    if there == "full":
        open_page.labs[0].store._keeper.db.execute("PRAGMA max_page_count = 1")
        page.button("again").click().run()
        until(page, lambda page: words in page.main.markdown[0].value and measured(page))
    assert words in page.main.markdown[0].value and not page.exception
    assert len(table(page)) == 4 and before <= {path.read_bytes() for path in private_home.rglob("*")}


def test_the_reason_of_a_finished_run_is_said():
    run = replace(recorded_run(), recorded=False, reason="measured on another device")
    said = status.line(Snapshot(version=1, worker=WorkerState(state="ready"), run=run), run, Form(run.sweep))
    assert said.startswith("Measured 30 November 2026") and "measured on another device" in said


def test_who_waits_sees_how_many_are_ahead():
    run = replace(recorded_run(), id="c", recorded=False, state="queued", measurements=())
    busy = WorkerState(state="busy")
    said = status.line(Snapshot(version=1, worker=busy, run=run, queue=("a", "b", "c")), run, Form(run.sweep))
    assert said.startswith("Queued, 3 runs ahead: ")
    assert status.queued(Snapshot(version=1, worker=busy, run=run, queue=("c",)), run) == "Queued, 1 run ahead"
    ready = WorkerState(state="ready")
    assert status.queued(Snapshot(version=1, worker=ready, run=run, queue=("c",)), run) == "Queued"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Starting the worker: "),
        ("starting the GPU worker takes longer than 20 s", "Starting the GPU worker takes longer than 20 s: "),
    ],
)
def test_whoever_waits_for_a_worker_is_told_why(text, words):
    run = replace(recorded_run(), id="a", recorded=False, state="queued", measurements=())
    starting = Snapshot(version=1, worker=WorkerState(state="starting", text=text), run=run, queue=("a",))
    assert status.line(starting, run, Form(run.sweep)).startswith(words)


def test_a_python_without_plotly_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(shell, "find_spec", lambda name: None)
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    assert [error.value for error in page.error] == [escape(lacks("plotly"))] and not page.exception


def test_a_public_server_says_what_is_too_much_and_cuts_the_rest(open_page, monkeypatch):
    monkeypatch.setenv("ATTNLAB_PUBLIC", "seq=256,seconds=5")
    shell._public.clear()
    try:
        link = {**TINY, "budget": "600", "try_oom": "true"}
        page = until(open_page(link, fake={"kind": "cpu"}), lambda page: run_of(page))
        asked = open_page.labs[0].snapshot(run_of(page)).run.sweep
        assert (asked.budget_s, asked.try_oom) == (5, False) and not page.exception
        assert not {"budget", "try_oom"} & {widget.key for widget in (*page.number_input, *page.toggle)}
        assert any("sequences up to 256" in caption.value and "5 s a run" in caption.value for caption in page.caption)
        page.select_slider("seq").set_value(1024).run()
        assert any("public server measures up to sequence 256" in error.value for error in page.error)
        assert page.button("run").disabled
    finally:
        shell._public.clear()


def test_a_visitor_who_is_refused_keeps_the_page(open_page, monkeypatch):
    """The queue of a public server is full when the page asks by itself, and when somebody presses Run."""
    monkeypatch.setenv("ATTNLAB_PUBLIC", "seq=256,seconds=5,queue=1")
    shell._public.clear()
    try:
        fake = {"kind": "cpu", "delay_s": 5}
        for heads in ("3", "4"):
            open_page({**TINY, "heads": heads}, fake)
        page = open_page({**TINY, "heads": "5", "live": "false"}, fake)
        page.button("run").click().run()
        assert not page.exception and run_of(page) is None and "hands full" in page.toast[0].value
        assert "Full" in status_line(page) and "as many runs wait as may" in status_line(page)
        page.toggle("live").set_value(True).run()
        assert "asked for again when one ends" in status_line(page) and not page.exception
        assert not page.toast, "it was told before"
        lab = open_page.labs[0]
        lab.cancel(lab.snapshot().queue[0])
        page.run()
        assert run_of(page) in lab.snapshot().queue and status_line(page).startswith("Queued, 1 run ahead")
    finally:
        shell._public.clear()


def test_the_cpu_has_a_banner_that_offers_the_recorded_run(open_page):
    page = open_page(fake={"kind": "cpu"}, recorded={"h200": recorded_run()})
    until(page, lambda page: run_of(page))
    assert "This is the CPU" in page.main.markdown[0].value
    assert any(said.value.startswith("The lab measures on the CPU, because") for said in page.sidebar.caption)
    assert any("NVIDIA H200" in option for option in page.selectbox("replay").options)


# The page as a whole


def elements(block):
    """Types and keys of everything below, in order; a number at a key's end counts up where a widget is made anew."""
    found = []
    for child in block.children.values():
        found.append((child.type, re.sub(r" \d+$", "", getattr(child, "key", None) or "")))
        found += elements(child) if getattr(child, "children", None) else []
    return found


def test_nothing_appears_or_vanishes_from_start_to_end(open_page):
    page = open_page({**TINY, "seq": "1024"}, fake={"delay_s": 0.05})
    layouts = [elements(page.main) + elements(page.sidebar)]
    while not measured(page):
        time.sleep(0.05)
        page.run()
        layouts.append(elements(page.main) + elements(page.sidebar))
    assert len(layouts) > 3 and all(layout == layouts[0] for layout in layouts)


def test_the_server_process_never_imports_torch(private_home):
    """In a process of its own: other tests of this one may have imported it."""
    script = f"""
import sys, time
from streamlit.testing.v1 import AppTest
page = AppTest.from_file({str(ROOT / "app.py")!r}, default_timeout=30)
for key, value in {QUICK!r}.items():
    page.query_params[key] = value
page.run()
while not page.main.markdown[1].value.startswith("Measured"):
    time.sleep(0.1)
    page.run()
page.run()
assert not page.exception and len(page.dataframe[1].value) == 4
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr


def test_a_run_of_unknown_device_has_a_name_in_the_list():
    assert status.recording("a", replace(recorded_run(), device=None)) == "Replay a · unknown device, 2026-11-30"


def test_one_of_several_gpus_is_chosen_by_name_and_uuid_and_measured_by_a_worker_of_its_own(private_home, monkeypatch):
    gpus = [Choice(f"NVIDIA H200 GPU-{name}", "CUDA_VISIBLE_DEVICES", f"GPU-{name}") for name in "ab"]
    monkeypatch.setattr(shell, "_devices", lambda: tuple(gpus))
    fake = [sys.executable, "-u", str(ROOT / "tests/fake_worker.py")]
    monkeypatch.setattr(shell, "default_worker_command", lambda: fake)
    shell._lab.clear()
    labs = {}
    try:
        page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        page.query_params.update({**TINY, "device": "GPU-b"})
        for name in "ba":
            until(page.run(), measured)
            labs[name] = shell._lab(gpus["ab".index(name)])
            run = labs[name].snapshot(run_of(page)).run
            assert run.device.uuid == f"GPU-{name}" and page.selectbox("device_box").value.name.endswith(f"GPU-{name}")
            page.selectbox("device_box").set_value(gpus[0])
        assert page.query_params["device"] == ["GPU-a"] or page.query_params["device"] == "GPU-a"
    finally:
        for lab in labs.values():
            lab.close()
        shell._lab.clear()
