"""The stage through AppTest: every step on a fake GPU and a CPU, what the keys do, live and kept results, the rehearsal.

What the keys do is tested by the request that they and the buttons end in; the keys themselves in test_browser_stage.py.
"""

import json
import re
import sys
from html import unescape
from pathlib import Path

import apptest
import pytest
from conftest import figure_of
from streamlit.testing.v1 import AppTest

from attnlab import rehearsal, talk
from attnlab.lab import Lab
from attnlab.presets import PRESETS
from attnlab.store import Store
from attnlab.ui import keys, shell, stage_form

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = talk.read(talk.SHIPPED)
MARK = "recorded on NVIDIA H200, 2026-11-30"


@pytest.fixture
def open_stage(private_home, monkeypatch):
    """open_stage(link, **mode) → the page after its first runs; `mode` is FAKE_WORKER's. A second call is another server on
    the same store. With `live` the link is one to the live page, and that has led to the stage."""
    labs, rehearsed = [], {}
    monkeypatch.setattr("attnlab.ui.rehearse._asked", lambda: rehearsed)

    def open_stage(link=None, live=False, **mode):
        for lab in labs:
            lab.close()
        monkeypatch.setenv("FAKE_WORKER", json.dumps(mode))
        command = [sys.executable, "-u", str(ROOT / "tests/fake_worker.py")]
        labs.append(Lab(Store(private_home), worker_command=command))
        monkeypatch.setattr(shell, "lab", lambda: labs[-1])
        page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        page.query_params["live"] = "false"
        if live:
            page.query_params.update(link)
            return until(page, lambda page: page.get("html") and said(page)[0] == SHIPPED.steps[-1].headline)
        page.run()
        page.switch_page("pages/stage.py")
        page.query_params.clear()
        for key, value in (link or {}).items():
            page.query_params[key] = value
        page.run()
        return until(page, lambda page: labs[-1].snapshot().worker.state in ("ready", "busy", "failed"))

    open_stage.labs, open_stage.rehearsed = labs, rehearsed
    yield open_stage
    for lab in labs:
        lab.close()


def until(page, ready):
    return apptest.until(page, ready, lambda page: f"the stage still says {line(page)!r}")


def followed(page):
    """AppTest runs the page of before again, although that has led to another."""
    return page.switch_page("pages/stage.py")


def ask(page, action):
    page.session_state["stage_request"] = action
    page.run()
    assert not page.exception
    return page


def said(page):
    """(headline, sentence)."""
    return tuple(unescape(re.sub("<[^>]*>", "", html.value)) for html in page.get("html")[:2])


def line(page):
    return page.main.markdown[1].value if len(page.main.markdown) > 1 else ""


def figure(page):
    (chart,) = [part for part in page.get("bidi_component") if part.key == "stage"]
    return figure_of(chart)


def drawn(page):
    return [a["name"].removeprefix("label-") for a in figure(page)["layout"]["annotations"] if "name" in a]


def measured(page):
    return ":green-badge[Live]" in line(page) and "measured in" in line(page)


def test_the_whole_talk_on_a_gpu(open_stage):
    page = open_stage(oom_at=["standard", 32768])
    for number, step in enumerate(SHIPPED.steps, start=1):
        assert page.main.markdown[0].value == f"**{SHIPPED.place(number)}**"
        assert page.query_params["step"] == [str(number)] or page.query_params["step"] == str(number)
        assert said(page)[0] == step.headline
        if step.kind in talk.SWEPT:
            until(page, measured)
            assert MARK not in line(page)
        if step.kind == "tiles":
            assert "stage_tiles" in [part.key for part in page.get("bidi_component")]
        elif step.kind not in ("softmax", "trip"):
            assert set(drawn(page)) == set(step.gpu.paths[: step.shown] if step.gpu else ("standard", "flash"))
        if number == 1:
            assert said(page)[1].startswith("From 128 to 512, 4× the tokens, standard takes")
        if number == 2:
            assert "standard runs out of memory at 32,768" in said(page)[1]
        ask(page, "next")
    assert said(page)[0] == SHIPPED.steps[-1].headline, "there is none after the last"
    for _ in SHIPPED.steps:
        ask(page, "back")
    assert said(page)[0] == SHIPPED.steps[0].headline


def test_the_whole_talk_on_a_cpu_marks_what_a_gpu_has_measured(open_stage):
    page = open_stage(kind="cpu")
    for step in SHIPPED.steps:
        assert said(page)[0] == step.headline
        if step.recorded:
            assert MARK in line(page) and MARK in said(page)[1]
            assert MARK in figure(page)["layout"]["xaxis"]["title"]["text"]
            assert page.slider("g_batch").disabled
        elif step.kind in talk.SWEPT:
            until(page, measured)
            assert page.slider("g_heads").value == step.cpu.problem.heads == 8
        ask(page, "next")
    runs = open_stage.labs[-1].store.recent()
    assert {run.sweep for run in runs} == {step.cpu for step in SHIPPED.steps if step.cpu}, (
        "nothing for a GPU was tried"
    )


def test_scale_and_paths_are_of_a_step(open_stage):
    page = until(open_stage({"step": "2"}), measured)
    assert figure(page)["layout"]["yaxis"]["type"] == "linear"
    assert figure(ask(page, "scale"))["layout"]["yaxis"]["type"] == "log"
    assert drawn(page) == ["standard", "flash"]
    assert drawn(ask(page, "reveal")) == ["standard"], "after the last it begins with the first"
    assert drawn(ask(page, "reveal")) == ["standard", "flash"]
    ask(page, "next")
    ask(page, "back")
    assert figure(page)["layout"]["yaxis"]["type"] == "linear"


def test_a_recorded_run_reveals_its_other_paths_one_at_a_time(open_stage):
    page = open_stage({"step": "2"}, kind="cpu")
    seen = [drawn(page)]
    for _ in range(4):
        seen.append(drawn(ask(page, "reveal")))
    order = ["standard", "flash", "flash-attn-2", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient"]
    assert seen == [order[: n + 2] for n in range(5)]


def test_presets_are_measured_on_a_gpu_and_replayed_without(open_stage):
    page = until(open_stage({"step": "8"}), measured)
    first = next(iter(PRESETS.values()))
    until(ask(page, "preset"), measured)
    assert first.title in line(page)
    assert open_stage.labs[-1].store.recent(1)[0].sweep == first.sweep()
    page = open_stage({"step": "8"}, kind="cpu")
    ask(page, "preset")
    assert first.title in line(page) and MARK in line(page)
    ask(page, "preset")
    assert list(PRESETS.values())[1].title in line(page)


def test_a_slider_runs_the_step_in_another_shape(open_stage):
    page = until(open_stage({"step": "2"}), measured)
    page.slider("g_heads").set_value(3)
    until(page, lambda page: "heads 3," in line(page) and measured(page))
    assert figure(page)["layout"]["xaxis"]["tickvals"][-1] == 32768
    page.select_slider("g_seq").set_value(1024)
    until(page, lambda page: measured(page) and figure(page)["layout"]["xaxis"]["tickvals"][-1] == 1024)
    ask(page, "next")
    ask(page, "back")
    assert page.slider("g_heads").value == 32, "a step begins with its own shape"


def test_a_browser_that_lost_the_sliders_is_told_again(open_stage):
    """It knows their declared values alone, and none of the dtype; a press moves a slider from there."""
    page = until(open_stage({"step": "2"}), measured)
    page.slider("g_heads").set_value(33)
    until(page, lambda page: "heads 33," in line(page) and measured(page))
    before = {name: page.session_state[f"g_{name}"] for name in stage_form.NAMES}
    for key, value in {"g_batch": 1, "g_heads": 2, "g_dtype": None}.items():
        page.session_state[key] = value
    page.run()
    assert {name: page.session_state[f"g_{name}"] for name in stage_form.NAMES} == before
    assert before["heads"] == 33 and "Cannot run" not in line(page)


def test_why_is_told_for_the_shape_on_the_sliders(open_stage):
    page = open_stage({"step": "3"})
    assert said(page)[1].startswith("Standard moves 27.1 GB through memory")
    page.slider("g_batch").set_value(2).run()
    assert said(page)[1].startswith("Standard moves 13.6 GB through memory")
    assert not open_stage.labs[-1].store.recent()


def test_a_shape_that_cannot_be_is_refused_in_words(open_stage):
    page = until(open_stage({"step": "8"}), measured)
    until(ask(page, "preset"), measured)
    page.slider("g_heads").set_value(9).run()
    assert "Cannot run" in line(page) and "legal for 9 heads: 1, 3, 9" in line(page).replace("\\", "")
    assert not page.exception
    page.slider("g_heads").set_value(16)
    until(page, measured)


def test_the_live_page_leads_to_the_stage_with_its_shape(open_stage):
    shape = {"batch": "2", "seq": "512", "heads": "5", "head_dim": "64", "dtype": "float16", "direction": "forward"}
    page = open_stage({**shape, "causal": "true", "stage": "true"}, live=True)
    until(followed(page), measured)
    assert page.slider("g_heads").value == 5
    assert "float16, causal" in line(page)
    address = {key: page.query_params[key] for key in page.query_params}
    again = until(
        open_stage({key: value[0] if isinstance(value, list) else value for key, value in address.items()}), measured
    )
    assert (again.slider("g_batch").value, again.select_slider("g_seq").value) == (2, 512), (
        "a link shows the same shape"
    )


def test_the_button_of_the_live_page_takes_a_recorded_run_along(open_stage):
    page = open_stage(kind="cpu")
    page.switch_page("pages/live.py")
    page.query_params.clear()
    page.query_params["replay"] = "h200"
    page.run()
    page.button("to_stage").click().run()
    followed(page).run()
    assert MARK in line(page) and page.main.markdown[0].value == "**8 / 8**"


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ({"step": "77"}, "step is '77' in the link, legal: whole numbers from 0, the rehearsal, to 8"),
        ({"step": "<b>"}, "step is '<b>' in the link"),
        ({"step": "-1"}, "step is '-1' in the link"),
        ({"step": "8", "g_batch": "0"}, "g_batch is '0' in the link, legal: whole numbers from 1 to 64"),
        ({"step": "8", "g_seq": "1000", "g_dtype": "int8"}, "g_dtype is 'int8' in the link, legal: bfloat16"),
    ],
)
def test_nonsense_in_a_link_is_told_in_one_line(open_stage, link, says):
    page = open_stage(link)
    page.run()
    assert says in line(page).replace("\\", "") and "\n" not in line(page)
    assert not page.exception
    ask(ask(page, "back"), "next")
    assert "in the link" not in line(page)


def test_a_talk_that_cannot_be_read_is_told_and_the_shipped_one_stands(open_stage, monkeypatch, tmp_path):
    mine = tmp_path / "mine.json"
    monkeypatch.setenv(talk.VARIABLE, str(mine))
    mine.write_text('{"steps": [{"headline": "x", "kind": "song"}]}')
    page = open_stage()
    assert "kind is 'song'; legal: sweep" in line(page).replace("\\", "")
    assert said(page)[0] == SHIPPED.steps[0].headline
    mine.write_text('{"steps": [{"headline": "All *mine* <b>", "kind": "softmax"}]}')
    page.run()
    assert said(page)[0] == "All *mine* <b>" and page.main.markdown[0].value == "**1 / 1**"


def test_the_kept_result_is_there_when_the_live_one_is_late_and_says_so(open_stage, monkeypatch):
    page = open_stage({"step": "0"})
    page.button("rehearse").click()
    until(page, lambda page: not page.button("rehearse").disabled)
    kept = {run.id for run in open_stage.labs[-1].store.recent()}
    open_stage.rehearsed.clear()  # as a restart of the server does
    monkeypatch.setattr(rehearsal, "LATE_S", 0.3)
    page = open_stage({"step": "2"}, hang_at=["standard", 128])
    until(page, lambda page: "from the rehearsal, " in line(page))
    assert ":orange-badge[" in line(page) and "live: " in line(page)
    assert "flash is" in said(page)[1] and drawn(page) == ["standard", "flash"]
    live = [run for run in open_stage.labs[-1].store.recent() if run.id not in kept]
    assert [run.state for run in live] == ["running"]


def test_without_a_rehearsal_what_was_measured_before_is_kept_too(open_stage, monkeypatch):
    until(open_stage({"step": "2"}), measured)
    monkeypatch.setattr(rehearsal, "LATE_S", 0.3)
    page = open_stage({"step": "2"}, hang_at=["standard", 128])
    until(page, lambda page: "measured before, " in line(page))


def test_a_live_result_that_is_in_time_is_shown_although_one_is_kept(open_stage):
    until(open_stage({"step": "2"}), measured)
    page = until(open_stage({"step": "2"}), measured)
    first, second = open_stage.labs[-1].store.recent(2)
    assert first.sweep == second.sweep and first.id != second.id, "measured anew"
    assert "before" not in line(page)


def test_the_rehearsal_measures_each_step_once_and_warns(open_stage):
    page = open_stage({"step": "0"}, fault_at=["flash", 512])
    assert said(page)[0] == SHIPPED.title and said(page)[1].startswith("Not rehearsed")
    page.button("rehearse").click()
    until(page, lambda page: not page.button("rehearse").disabled)
    table = page.table[0].value
    assert list(table["Step"]) == [SHIPPED.place(n) for n in range(1, 9)]
    verdicts = [cell.split("[")[1].rstrip("]") for cell in table[""]]
    assert verdicts[2:5] == ["nothing to measure"] * 3
    assert verdicts[0] == "fails" and "flash fault at 512" in table["What to expect"][0].replace("\\", "")
    assert "will fail: 1, 2" in said(page)[1]
    asked = [run.sweep for run in open_stage.labs[-1].store.recent()]
    assert len(asked) == len(set(asked)) == len({s.sweep("cuda") for s in SHIPPED.steps if s.sweep("cuda")})


def test_a_rehearsal_on_a_public_server_says_what_it_does_not_measure(open_stage, monkeypatch):
    from attnlab.limits import Limits

    monkeypatch.setattr(shell, "_public", lambda: Limits(seq=1024))
    page = open_stage({"step": "0"})
    table = page.table[0].value
    assert "measures up to sequence 1,024" in table["What to expect"][1] and "fails" in table[""][1]
    ask(page, "first")
    until(page, measured)
    ask(page, "next")
    assert "measures up to sequence 1,024, not 32,768" in line(page) and not page.exception


def test_exactness_is_measured_when_asked_and_recorded_until_then(open_stage):
    page = open_stage({"step": "6"})
    assert MARK in said(page)[1] and page.slider("g_batch").disabled
    assert page.select_slider("g_seq").value == 8192, "the sliders say of which shape, here the recorded one"
    ask(page, "run")
    until(page, measured)
    assert MARK not in said(page)[1]


def test_a_worker_that_cannot_start_is_told_on_the_stage(open_stage):
    page = open_stage({"step": "1"}, fatal_at_start=True)
    until(page, lambda page: "The worker failed" in line(page))
    assert "PyTorch is not installed" in line(page)
    assert said(ask(page, "next"))[0] == SHIPPED.steps[1].headline


def test_presses_are_acted_upon_once_and_in_order(monkeypatch):
    state = {keys.KEY: {"pressed": [[5, "next"], [6, "reveal"], [7, "drop table"], [8, 3], "next", [9, "back"]]}}
    monkeypatch.setattr(keys.st, "session_state", state)
    assert keys.pressed() == ["next", "reveal", "back"]
    assert keys.pressed() == []
    state[keys.KEY] = {"pressed": [[9, "back"], [10, "run"]]}
    assert keys.pressed() == ["run"]
    state[keys.KEY] = {"pressed": "next"}
    assert keys.pressed() == []


def test_a_run_of_a_step_that_was_left_is_stopped_for_the_next_and_asked_for_again(open_stage):
    page = open_stage({"step": "1"}, delay_s=0.15)
    until(page, lambda page: "blue-badge" in line(page))
    ask(page, "next")
    store = open_stage.labs[-1].store
    until(page, lambda page: sorted(run.state for run in store.recent()) == ["cancelled", "running"])
    ask(page, "back")
    until(page, measured)
    assert len(open_stage.labs[-1].store.recent()) == 3
