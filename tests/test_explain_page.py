"""The page that says why it is fast, through AppTest and in Chromium: nothing measured, a recorded run, a real one."""

import json
import time
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import streamlit as st
from apptest import until
from samples import H200
from streamlit.testing.v1 import AppTest

from attnlab import code_steps, cost, online_softmax, trip
from attnlab.finding import Finding
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.tiling import Tiling
from attnlab.ui import explain_trip
from attnlab.ui.tiles import walk

ROOT = Path(__file__).resolve().parents[1]
MARK = "recorded on NVIDIA H200, 2026-11-30"
PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)
TIMES_MS = {"QKᵀ": 2.5, "scale": 2.25, "softmax": 2.375, "AV": 2.25}


def anatomy(problem=PROBLEM, counted=False, **more):
    """A run as the worker reports it, with made-up times."""
    moved = {step.name: step for step in trip.operations(problem)}

    def found(what, ms, step, kernels):
        values = {"device_ms": ms, "read_bytes": step.read_bytes, "write_bytes": step.write_bytes, "kernels": 1}
        values |= {"dram_read_bytes": 67_100_000, "dram_write_bytes": 40_900_000} if counted else {}
        return Finding(what=what, verdict="pass", text=kernels, values=values)

    q = cost.query_bytes(problem)
    copy, view = trip.MemoryStep("", q, q), trip.MemoryStep("", 0, 0)
    standard = [found(what, ms, moved[what], f"kernel_of_{what}") for what, ms in TIMES_MS.items() if what in moved]
    standard += [found(trip.VIEW, 0.0, view, "a view"), found(trip.COPY, 0.0625, copy, "copy_kernel")]
    flash = [found(trip.KERNEL, 1.25, trip.flash(problem), "flash_fwd")]
    points = [
        Measurement.of(problem, p, "ok", findings=tuple(f)) for p, f in (("standard", standard), ("flash", flash))
    ]
    run = {
        "id": "h200-anatomy",
        "state": "done",
        "created": "2026-11-30T10:00:00+00:00",
        "device": H200,
        "recorded": True,
    }
    return Run(sweep=trip.sweep(problem), measurements=tuple(points), **(run | more))


@pytest.fixture
def open_page(page_lab):
    """open_page(link, recorded=(run, …), real=False) → the page after its first run with the device."""

    def open_page(link=None, recorded=(), real=False, page="pages/explain.py", **fake):
        lab = page_lab({run.id: run for run in recorded}, real, **{"kind": "cpu"} | fake)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
        app.switch_page(page)
        app.query_params.clear()
        for key, value in (link or {}).items():
            app.query_params[f"w_{key}"] = value
        app.run()
        assert not app.exception
        return until(app, lambda app: lab.snapshot().worker.device is not None, said).run()

    open_page.labs = page_lab.labs
    return open_page


def said(page):
    html = [unescape(part.value).replace("\u2060", "") for part in page.get("html")]
    return "\n".join([*html, *(part.value for part in page.main.markdown)])


def charts(page):
    return [json.loads(part.proto.json) for part in page.get("bidi_component")]


def table(page):
    return page.table[0].value


def cells(page, column):
    frame = table(page)
    return [str(cell).replace("\u00a0", " ") for cell in frame[column]]


@pytest.mark.parametrize(("kind", "shape"), [("cpu", (1, 1024, 8, 64)), ("cuda", (4, 4096, 32, 128))])
def test_the_defaults_fit_the_device(open_page, kind, shape):
    page = open_page(kind=kind)
    found = page.slider("w_batch").value, page.select_slider("w_seq").value
    assert (*found, page.slider("w_heads").value, page.select_slider("w_head_dim").value) == shape
    assert page.session_state["w_dtype"] == ("float32" if kind == "cpu" else "bfloat16")


def test_with_nothing_measured_the_bytes_stand_there_and_no_time_claims_to_be_measured(open_page):
    page = open_page(kind="cuda")
    assert trip.sentence(PROBLEM) in said(page) and "Not measured here" in said(page)
    assert "The scores of 4 × 32 × 4,096 × 4,096 in bfloat16 are 4.29 GB; at 8,192 they are 17.2 GB" in said(page)
    assert [name.split(" :small")[0] for name in cells(page, "Operation")] == [
        "QKᵀ", "scale", "softmax", "AV", "**:orange[standard], all**", "**:blue[flash]**"
    ]  # fmt: skip
    assert cells(page, "Reads")[-1] == trip.decimal_size(cost.min_read_bytes(PROBLEM))
    assert cells(page, "At\u00a04.8\u00a0TB/s")[1] == "1.79 ms"
    assert set(cells(page, "Measured")) == {"–"} == set(cells(page, "Achieved"))
    assert "not measured" in json.loads(charts(page)[1][0])["layout"]["title"]["text"]


def test_a_recorded_run_is_offered_and_marked_wherever_its_numbers_stand(open_page):
    page = open_page({"show": "h200-anatomy"}, recorded=(anatomy(),))
    assert page.selectbox("w_show_box").options == ["Measure on this machine", "Recorded on NVIDIA H200 (h200-anatomy)"]
    assert page.button("w_measure").disabled and page.slider("w_recorded_batch").disabled
    assert f":violet-badge[{MARK}]" in said(page).replace("\\", "")
    assert MARK in json.loads(charts(page)[1][0])["layout"]["title"]["text"]
    (kernels,) = [name for name in table(page) if name.startswith("Kernels that ran")]
    assert MARK in kernels.replace("\\", "")
    assert cells(page, "Measured") == ["2.50 ms", "2.25 ms", "2.38 ms", "2.25 ms", "9.38 ms", "1.25 ms"]
    softmax = trip.operations(PROBLEM)[2].moved_bytes
    assert cells(page, "Achieved")[2] == trip.rate(softmax / 2.375e9)
    assert cells(page, kernels)[2] == ":small[kernel\\_\u200bof\\_\u200bsoftmax]"

    page.segmented_control("w_section").set_value("Layout").run()
    assert page.query_params["w_section"] == "Layout" and page.query_params["w_show"] == "h200-anatomy"
    moved = 2 * cost.query_bytes(PROBLEM)
    assert f"Making it contiguous moves {trip.decimal_size(moved)}, 0.0625 ms ({MARK})." in said(page).replace(
        "\u00a0", " "
    )
    assert cells(page, "Measured") == ["–", "0 ms", "0.0625 ms"]
    (what,) = [name for name in table(page) if name.startswith("What runs")]
    assert MARK in what.replace("\\", "") and trip.rate(moved / 0.0625e9) in cells(page, what)[2]


def test_what_the_hardware_counted_stands_beside_the_model(open_page):
    page = open_page({"show": "h200-anatomy"}, recorded=(anatomy(counted=True),))
    reads, writes = cells(page, "Reads"), cells(page, "Writes")
    assert reads[1].endswith(" :small[:violet[(67.1 MB)]]") and writes[1].endswith("(40.9 MB)]]")
    assert reads[4].endswith(f"({trip.decimal_size(4 * 67_100_000)})]]")  # standard, all four
    assert "what the hardware counted" in said(page)
    assert page.button("w_counters").disabled  # a recorded run is shown
    assert "counted" not in said(open_page())


def test_kernels_that_follow_upon_one_another_are_counted():
    assert explain_trip.kernels("copy + copy + Memset + gemm_a") == "2 × copy + Memset + gemm\\_\u200ba"


def test_where_the_counters_cannot_be_read_the_page_says_why(open_page):
    run = anatomy()
    why = Finding(what=trip.COUNTERS, verdict="unsupported", text="ncu is not on the PATH")
    point = replace(run.measurements[0], findings=(*run.measurements[0].findings, why))
    page = open_page({"show": "h200-anatomy"}, recorded=(replace(run, measurements=(point, run.measurements[1])),))
    assert "The counters were not read: ncu is not on the PATH." in said(page)


@pytest.mark.parametrize(("kind", "disabled"), [("cpu", True), ("cuda", False)])
def test_the_counters_can_be_asked_for_on_a_gpu(open_page, kind, disabled):
    page = open_page(kind=kind)
    assert page.button("w_counters").disabled is disabled
    if not disabled:
        page.button("w_counters").click().run()
        until(page, lambda page: ":green-badge[Measured]" in said(page) or "Incomplete" in said(page), said)


def test_the_exactness_page_knows_nothing_of_anatomies(open_page):
    page = open_page(page="pages/exactness.py", recorded=(anatomy(),))
    assert page.selectbox("x_show").options == ["Measure on this machine"]


def test_a_real_measurement_on_the_cpu(open_page):
    page = open_page({"seq": "256", "heads": "2", "head_dim": "32", "causal": "true"}, real=True)
    page.button("w_measure").click().run()
    until(page, lambda page: ":green-badge[Measured]" in said(page), said)
    measured = cells(page, "Measured")
    assert len(measured) == 7 and all(cell.endswith(" ms") for cell in measured)
    page.segmented_control("w_section").set_value("Layout").run()
    assert cells(page, "Measured")[2].endswith(" ms")


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"batch": "0"}, "w_batch is '0' in the link, legal: whole numbers from 1 to 64"),
        ({"seq": "1000"}, "w_seq is '1000' in the link, legal: 128, 256"),
        ({"dtype": "int8"}, "w_dtype is 'int8' in the link, legal: bfloat16, float16, float32"),
        ({"block_q": "100"}, "w_block_q is '100' in the link, legal: 16, 32, 64, 128, 256"),
        ({"show": "a100"}, "w_show is 'a100' in the link, legal: nothing"),
        ({"section": "All"}, "w_section is 'All' in the link, legal: The trip, Tiles"),
    ],
)
def test_a_link_that_cannot_be_is_said_and_the_defaults_stand(open_page, link, words):
    page = open_page(link, kind="cuda")
    assert words in said(page).replace("\\", "") and words in page.sidebar.warning[0].value.replace("\\", "")
    assert page.slider("w_batch").value == 4 and page.select_slider("w_block_q").value == 128


def test_the_form_is_in_the_address_and_a_link_restores_it(open_page):
    link = {"batch": "2", "seq": "512", "heads": "4", "head_dim": "64", "dtype": "float16", "section": "Tiles"}
    page = open_page(link)
    assert {key: page.query_params[f"w_{key}"] for key in link} == link
    page.select_slider("w_block_q").set_value(64).run()
    assert page.query_params["w_block_q"] == "64"
    page.switch_page("pages/live.py").run()
    page.switch_page("pages/explain.py").run()
    assert page.select_slider("w_seq").value == 512 and page.select_slider("w_block_q").value == 64
    assert page.segmented_control("w_section").value == "Tiles"


def test_the_tiles_are_told_the_arithmetic(open_page):
    page = open_page({"section": "Tiles", "causal": "true"}, kind="cuda")
    (told, _, alt), tiling = charts(page)[0], Tiling(AttentionProblem(**{**PROBLEM.to_json(), "causal": True}))
    assert "none is written to memory" in alt
    assert told == json.loads(json.dumps(walk(tiling, 228 * 1024, "shared memory on NVIDIA H200")))
    assert told["standard"] == trip.standard_bytes(tiling.problem)
    assert "One tile of 64 KB on chip at a time, instead of 4.29 GB" in said(page)


def test_the_online_softmax_by_hand(open_page):
    page = open_page({"section": "Online softmax"})
    blocks = online_softmax.trace(online_softmax.SCORES, online_softmax.VALUES, 4)
    assert cells(page, "sum l")[1:] == [online_softmax.number(block.l) for block in blocks]
    assert said(page).count(repr(blocks[-1].answer)) == 2 and ":green-badge[✓ right]" in said(page)

    page.number_input("w_score_0").set_value(6.0).run()
    assert cells(page, "max m") == ["−∞", "6", "6"]

    page.segmented_control("w_mode").set_value("Without the max").run()
    page.button("w_large").click().run()
    assert "Here" not in said(page) and "the answer is nan" in said(page) and ":red-badge[✗ wrong]" in said(page)
    page.segmented_control("w_mode").set_value("Without the rescale").run()
    assert "the answer is wrong" in said(page)
    page.segmented_control("w_mode").set_value("Online softmax").run()
    assert ":green-badge[✓ right]" in said(page)
    assert page.number_input("w_score_0").value == online_softmax.LARGE_SCORES[0]

    page.number_input("w_value_7").set_value(None).run()
    assert page.error[0].value.replace("\\", "") == (
        "the value of key 8 is empty; legal: a number from −1,000,000 to 1,000,000"
    )


def test_the_code_is_stepped_through_with_the_readers_numbers(open_page):
    page = open_page({"section": "Online softmax"})
    page.number_input("w_score_0").set_value(6.0).run()
    page.segmented_control("w_section").set_value("The code").run()
    assert "scores = (q @ k.mT) / math.sqrt(q.shape[-1])" in said(page) and "rescale = torch.exp(m - m_new)" in said(
        page
    )
    for _ in range(2):
        page.button("w_next").click().run()
    scores = (6.0, *online_softmax.SCORES[1:])
    step = code_steps.steps(scores, online_softmax.VALUES)[2]
    assert cells(page, "Now") == list(step.state.values()) and step.state["m_new"] == "6"
    page.segmented_control("w_section").set_value("Online softmax").run()
    assert page.number_input("w_score_0").value == 6.0


def test_in_a_browser_playing_the_tiles_reruns_nothing_and_shows_the_arithmetic(chromium_page, start_app, tmp_path):
    shape = "w_batch=2&w_seq=4096&w_heads=4&w_head_dim=64&w_dtype=bfloat16&w_causal=true&w_block_q=128&w_block_k=64"
    sent = []
    chromium_page.on("websocket", lambda socket: socket.on("framesent", lambda data: sent.append(data)))
    chromium_page.goto(
        start_app(ROOT / "app.py", query=f"/explain?w_section=Tiles&{shape}")
    )
    tiles = chromium_page.locator(".attnlab-tiles")
    tiles.wait_for()
    chromium_page.get_by_text("This is the CPU").wait_for()
    chromium_page.wait_for_timeout(1500)  # the last run of the page
    problem = AttentionProblem(batch=2, seq_q=4096, heads=4, head_dim=64, causal=True)
    tiling = Tiling(problem, 128, 64)

    def shows(step):
        chromium_page.evaluate(
            "step => { const r = document.querySelector('.attnlab-tiles input'); r.value = step; r.oninput(); }", step
        )
        texts = {
            name: tiles.locator(f'[data-figure="{name}"]').inner_text() for name in ("once", "asked", "step", "scores")
        }
        assert texts["once"] == trip.decimal_size(tiling.once_bytes(step))
        assert texts["asked"] == trip.decimal_size(tiling.asked_bytes(step))
        assert texts["step"] == f"tile {step + 1:,} of {tiling.steps:,}"
        assert texts["scores"] == trip.decimal_size(cost.score_bytes(problem))

    for step in (0, 1, 2, 500, tiling.steps - 1):
        shows(step)
    shows(0)
    before_frames, before_sent = int(tiles.get_attribute("data-frames")), len(sent)
    tiles.locator('[data-do="play"]').click()
    started = time.monotonic()
    chromium_page.wait_for_function(
        "frames => document.querySelector('.attnlab-tiles').dataset.frames >= frames", arg=before_frames + 62
    )
    pulses = 2 + 1.5 * (time.monotonic() - started)
    assert int(tiles.get_attribute("data-step")) > 1
    assert len(sent) - before_sent <= pulses, "playing must send nothing; the pulse sends once a second"
    tiles.locator('[data-do="play"]').click()
    assert tiles.locator('[data-do="play"]').inner_text() == "Play"
    step = int(tiles.get_attribute("data-step"))
    tiles.locator('[data-do="next"]').click()
    assert int(tiles.get_attribute("data-step")) == step + 1
    light = tiles.evaluate("tiles => tiles.style.color")
    chromium_page.emulate_media(color_scheme="dark")
    chromium_page.wait_for_function(f"document.querySelector('.attnlab-tiles').style.color !== '{light}'")
    box = tiles.bounding_box()
    if hasattr(st, "grid"):  # Streamlit 1.65, the last for Python 3.10, pads the page more
        assert box["y"] + box["height"] <= 720, "the tiles belong on the first screen of a small projector"
