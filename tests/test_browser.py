"""The whole page in a real browser. The chart by itself is tested in test_browser_chart.py; here the live page
streams, keeps what a visitor did, lives in its address, and goes on while widgets are touched (F23, F24).

`chromium_page` fails a test whose page asks anything but this machine.
"""

import json
import re
import sys
import time
from pathlib import Path

import pytest
import streamlit as st
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnlab import units
from attnlab.export import recorded_runs
from attnlab.store import Store

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.browser

LATENCY = '.attnlab-chart[aria-label^="Latency"]'
NUMBERS = """(chart) => (chart?._fullData ?? []).filter((trace) => trace.uid.endsWith("-line"))
    .reduce((sum, trace) => sum + trace.y.filter((y) => y !== null).length, 0)"""
SIX = "?seq=4096&heads=16&head_dim=32&dtype=bfloat16&direction=forward"  # 128 … 4,096: six lengths


@pytest.fixture
def fake_app(start_app):
    """fake_app(query, **mode) → the URL of the app whose worker computes nothing (fake_worker.py)."""

    def start(query="", **mode):
        worker = f"{sys.executable} {ROOT / 'tests/fake_worker.py'}"
        return start_app(ROOT / "app.py", {"ATTNLAB_WORKER": worker, "FAKE_WORKER": json.dumps(mode)}, query)

    return start


@pytest.fixture
def held_app(fake_app, tmp_path):
    """held_app(query) → (URL, go): a run stands still before its sixth point until the file `go` is there."""
    go = tmp_path / "go"
    return lambda query: (fake_app(query, hold={"at": ["flash", 512], "file": str(go)}), go)


def status_is(page, start, timeout=60_000):
    """Waits until the page's status line starts with these words; returns it."""
    from playwright.sync_api import TimeoutError  # here, because these tests skip where it is not installed

    says = page.locator(".st-key-status p")
    line = says.filter(has_text=re.compile(f"^{re.escape(start)}")).first
    try:
        line.wait_for(timeout=timeout)
    except TimeoutError:
        pytest.fail(f"the page says {says.all_inner_texts()}, not {start!r}")
    return line.inner_text()


def points(page):
    return page.locator(LATENCY).evaluate(NUMBERS)


def wait_for_points(page, count):
    page.wait_for_function(
        f"([selector, count]) => ({NUMBERS})(document.querySelector(selector)) >= count",
        arg=[LATENCY, count],
        timeout=60_000,
    )


def run(page):
    """Presses Run once the charts are there, so that none of the stream is missed."""
    page.locator(LATENCY).locator(".xtick").first.wait_for(timeout=60_000)
    page.locator(".st-key-run button:enabled").click(timeout=60_000)


def slide(page, key, presses):
    """Moves a slider with the arrow keys, as many steps as told; negative is left."""
    thumb = page.locator(f".st-key-{key} input[type=range]")
    thumb.focus()
    for _ in range(abs(presses)):
        thumb.press("ArrowRight" if presses > 0 else "ArrowLeft")


def slider_value(page, key):
    return page.locator(f".st-key-{key} input[type=range]").input_value()


def stored_runs(home):
    """[(state, {heads of the points}, number of points)] of every run in the store, newest first."""
    store = Store(home)
    runs = [store.load(run.id) for run in store.recent()]
    store.close()
    return [(run.state, {m.problem.heads for m in run.measurements}, len(run.measurements)) for run in runs]


def choose(page, key, option):
    """Picks an option of a list by its words."""
    page.locator(f".st-key-{key} input").click()
    page.get_by_role("option", name=option, exact=True).click()


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("Whisper large, cross-attention", "--seqs 128,256,512,1024,1500 --dtype float16 --seq-q 448"),
    ],
)
def test_a_preset_fills_the_form_and_its_address_shows_the_same_elsewhere(chromium_page, fake_app, title, line):
    page = chromium_page
    page.goto(fake_app("?live=false&window=9&dtype=bfloat16&direction=forward"))
    page.locator(".st-key-run button:enabled").wait_for(timeout=60_000)
    choose(page, "preset", title)
    page.wait_for_function("!location.search.includes('window=')")  # the form is filled
    page.locator(".st-key-run button:enabled").click()
    asked = page.locator("code", has_text="python -m attnlab sweep")
    asked.filter(has_text=line).wait_for(timeout=60_000)
    said = asked.inner_text()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(".st-key-run button:enabled").click(timeout=60_000)
    asked.filter(has_text=line).wait_for(timeout=60_000)
    assert asked.inner_text() == said


def test_curves_stream_in_and_the_zoom_stays(chromium_page, held_app):
    page = chromium_page
    url, go = held_app(SIX + "&live=false")
    page.goto(url)
    run(page)
    wait_for_points(page, 1)
    assert points(page) < 12, "the first points are shown before the last"
    plot = page.locator(LATENCY).locator(".nsewdrag").first.bounding_box()
    x, y = plot["x"] + 0.4 * plot["width"], plot["y"] + 0.2 * plot["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 0.4 * plot["width"], y + 0.6 * plot["height"], steps=5)
    page.mouse.up()
    axis = "(chart) => chart._fullLayout.xaxis.range"
    zoomed = page.locator(LATENCY).evaluate(axis)
    go.touch()
    wait_for_points(page, 12)
    status_is(page, "Measured")
    assert page.locator(LATENCY).evaluate(axis) == zoomed


PANEL_SAYS = """(wanted) => wanted.every(([key, value]) =>
    document.querySelector(`[class*=st-key-point_${key}] input`)?.value === value)"""
PLACES = "[...document.querySelectorAll('.attnlab-chart')].map((c) => JSON.stringify(c.getBoundingClientRect()))"


def place_of(page, chart, uid, seq):
    """Where on the screen a chart draws a point."""
    return page.locator(chart).evaluate(
        """(chart, [uid, seq]) => {
            const trace = chart._fullData.find((trace) => trace.uid === uid), axes = chart._fullLayout;
            const y = trace.y[trace.x.indexOf(seq)], box = chart.getBoundingClientRect();
            return [box.x + axes.xaxis._offset + axes.xaxis.d2p(seq), box.y + axes.yaxis._offset + axes.yaxis.d2p(y)];
        }""",
        [uid, seq],
    )


def click_point(page, chart, path, seq):
    page.mouse.move(*place_of(page, chart, f"{path}-line", seq))
    page.locator(chart).locator(".hovertext").first.wait_for()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function(PANEL_SAYS, arg=[["path", path], ["seq", f"at {seq:,}"]])


def test_a_click_on_a_point_opens_it_while_a_run_goes_on(chromium_page, held_app):
    page = chromium_page
    page.set_viewport_size({"width": 1280, "height": 900})  # all of the charts in sight, for the mouse
    large = SIX.replace("heads=16&head_dim=32", "batch=16&heads=64&head_dim=128")  # the curves lie apart
    url, go = held_app(large + "&live=false")
    page.goto(url)
    page.locator("[class*=st-key-point_path]").wait_for()  # what is heavy has come
    run(page)
    wait_for_points(page, 4)
    plot = page.locator(LATENCY).locator(".nsewdrag").first.bounding_box()
    page.mouse.move(plot["x"] + 2, plot["y"] + 0.3 * plot["height"])
    page.mouse.down()
    page.mouse.move(plot["x"] + 0.6 * plot["width"], plot["y"] + plot["height"] - 2, steps=5)
    page.mouse.up()
    axis = "(chart) => [chart._fullLayout.xaxis.range, chart._fullLayout.yaxis.range]"
    inside = "(chart) => chart._fullLayout.xaxis.range[1] < Math.log10(4096)"
    page.wait_for_function(inside, arg=page.locator(LATENCY).element_handle())
    page.wait_for_timeout(500)  # sooner it would be a double click, which takes the zoom back
    zoomed, places = page.locator(LATENCY).evaluate(axis), page.evaluate(PLACES)
    click_point(page, LATENCY, "standard", 128)
    click_point(page, '.attnlab-chart[aria-label^="Memory"]', "flash", 256)
    assert points(page) < 12, "the panel answered while points were still to come"
    assert "Samples" in page.locator(".st-key-one_point").inner_text()
    assert page.evaluate(PLACES) == places and page.locator(LATENCY).evaluate(axis) == zoomed
    go.touch()
    status_is(page, "Measured")
    assert page.locator(LATENCY).evaluate(axis) == zoomed and page.evaluate(PLACES) == places
    assert page.evaluate(PANEL_SAYS, [["path", "flash"], ["seq", "at 256"]]), "what was picked stays picked"


def test_a_click_runs_the_panel_and_no_other_part_of_the_page(chromium_page, fake_app):
    page = chromium_page
    page.goto(fake_app("?replay=h200"))
    page.locator("[class*=st-key-point_path]").wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    updates = "[...document.querySelectorAll('.attnlab-chart')].map((c) => [c.ariaLabel, c.dataset.updates])"
    page.wait_for_function("document.querySelectorAll('.attnlab-chart[data-updates]').length === 6")
    before = None
    while before != (before := dict(page.evaluate(updates))):
        page.wait_for_timeout(1000)  # until the page has come to rest
    click_point(page, LATENCY, "standard", 2048)
    says = page.locator(".st-key-one_point dl")
    recorded = recorded_runs()[0]["h200"]
    says.get_by_text(units.ms(recorded.get("standard", 2048).device_ms)).first.wait_for()
    after = dict(page.evaluate(updates))
    assert {name: after[name] for name in before if name in after} == {
        name: count for name, count in before.items() if "against" in name
    }
    page.wait_for_function("document.querySelectorAll('[class*=st-key-point_seq] input').length === 1")  # the new one alone
    page.locator("[class*=st-key-point_seq] input").focus()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it has scrolled
    page.keyboard.press("ArrowDown")
    page.get_by_role("option", name="at 4,096", exact=True).wait_for()
    page.keyboard.press("Enter")
    says.get_by_text(units.ms(recorded.get("standard", 4096).device_ms)).first.wait_for()


def test_the_clock_switches_the_curves_in_place_and_is_in_the_address(chromium_page, fake_app):
    page = chromium_page
    page.goto(fake_app(SIX))
    status_is(page, "Measured")
    wait_for_points(page, 12)
    times = """(chart) => chart._fullData.filter((t) => t.uid === "standard-line")[0].y"""
    chart = page.locator(LATENCY).element_handle()
    page.get_by_text("The same run as a command line").wait_for()  # the last that a page draws
    page.locator(".st-key-clock").scroll_into_view_if_needed()
    device, places = chart.evaluate(times), page.evaluate(PLACES)
    page.locator(".st-key-clock").get_by_text("wall", exact=True).click()
    page.wait_for_function(f"([chart, ms]) => ({times})(chart)[0] === 2 * ms", arg=[chart, device[0]])
    assert chart.evaluate(times) == [2 * ms for ms in device] and chart.evaluate("chart => chart.isConnected")
    assert page.evaluate(PLACES)[:3] == places[:3]
    page.wait_for_url(re.compile("clock=wall"))
    page.goto(page.url)
    page.locator(".attnlab-chart .gtitle").get_by_text("wall ms").first.wait_for()


def test_the_address_restores_the_shape(chromium_page, fake_app):
    page = chromium_page
    page.goto(fake_app())
    status_is(page, "Measured")
    slide(page, "heads", 2)
    page.get_by_role("radio", name="float16", exact=True).click()
    page.locator(".st-key-causal label").click()
    page.wait_for_url(re.compile(r"causal=true"))
    page.wait_for_url(re.compile(r"dtype=float16"))
    status_is(page, "Measured")
    link = page.url
    for part in ("seq=16384", "heads=34", "head_dim=128", "batch=4", "direction=forward"):
        assert part in link
    page.goto("about:blank")
    page.goto(link)
    status_is(page, "Measured")
    assert [slider_value(page, key) for key in ("batch", "heads")] == ["4", "34"]
    command = page.get_by_test_id("stCode").inner_text()
    assert "--batch 4 --heads 34 --dim 128" in command and "--dtype float16 --causal" in command
    assert page.url == link


def test_every_message_is_sent_whole(chromium_page, fake_app):
    """Under load a browser was told to take a message from its cache that it had dropped, and gave up the connection."""
    kinds = []

    def see(frame):
        message = ForwardMsg.FromString(frame)
        kinds.append((message.WhichOneof("type"), len(frame)))

    page = chromium_page
    page.on("websocket", lambda socket: socket.on("framereceived", see))
    page.goto(fake_app(SIX))
    status_is(page, "Measured")
    page.get_by_test_id("stDataFrame").first.wait_for()
    for live in ("false", "true"):  # runs the page again, with equal charts and an equal table
        page.locator(".st-key-live label").click()
        page.wait_for_url(re.compile("live=false") if live == "false" else re.compile("^((?!live=).)*$"))
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    assert max(size for _, size in kinds) > 10_000, "what Streamlit would cache"
    assert "ref_hash" not in {kind for kind, _ in kinds}


class Withheld:
    """Between browser and server: once armed, what the `wanted`-th fragment of the next run of the whole page draws does not
    arrive.

    So it is where a server is busy: what Streamlit has not sent of a fragment, it drops when that fragment runs again."""

    def __init__(self, page):
        self.armed = self.whole = False
        self.fragments, self.again = [], set()  # those of that run, and those that have run by themselves since
        page.route_web_socket("**/_stcore/stream", self.connect)

    def arm(self, wanted):
        self.wanted, self.armed, self.whole, self.count = wanted, True, False, 0
        self.fragments.clear()

    def connect(self, browser):
        browser.connect_to_server().on_message(lambda frame: self.passes(frame) and browser.send(frame))

    def passes(self, frame):
        message = ForwardMsg.FromString(frame)
        kind, fragment = message.WhichOneof("type"), message.delta.fragment_id
        if kind == "navigation":  # which a fragment has nothing to do with
            self.whole = self.armed
        elif kind == "script_finished" and self.whole:
            self.whole, self.armed = False, not self.count  # one that was cut short is not what was meant
            self.again.clear()
        if not (self.whole and fragment):
            self.again.add(fragment)
            return True
        if fragment not in self.fragments:
            self.fragments.append(fragment)
        withheld = self.fragments.index(fragment) == self.wanted
        self.count += withheld
        return not withheld


def test_a_part_of_the_page_that_does_not_arrive_takes_no_other_part_with_it(chromium_page, held_app):
    """The browser takes such a part out, what followed it moves up, and the next messages meant other elements: the page was
    blank from then on (in 1 of 6 runs with more browsers than cores)."""
    page, between = chromium_page, Withheld(chromium_page)
    url, go = held_app(SIX + "&live=false")
    page.goto(url)
    run(page)
    wait_for_points(page, 4)
    for wanted in range(4):
        between.arm(wanted)
        until = time.monotonic() + 60
        while between.armed:
            assert time.monotonic() < until
            page.locator(".st-key-causal label").click()  # runs the whole page; again where Streamlit itself dropped that part
            page.wait_for_timeout(3000)
        while not between.again >= set(between.fragments):
            assert time.monotonic() < until, "the parts draw themselves again"
            page.wait_for_timeout(100)
        page.wait_for_function("document.querySelectorAll('.attnlab-chart').length === 6", timeout=60_000)
        page.get_by_test_id("stDataFrame").first.wait_for()
    go.touch()
    status_is(page, "Measured")
    wait_for_points(page, 12)


def test_a_page_that_an_error_of_the_front_end_takes_away_comes_back_to_its_run(
    chromium_browser, held_app, private_home
):
    context, errors, sockets, (url, go) = chromium_browser.new_context(), [], [], held_app(SIX)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route_web_socket("**/_stcore/stream", lambda socket: sockets.append(socket) or socket.connect_to_server())
    page.goto(url)
    wait_for_points(page, 4)
    page.evaluate("window.before = true")
    misplaced = ForwardMsg()
    misplaced.metadata.delta_path.extend([0, 99])
    misplaced.delta.new_element.markdown.body = "where nothing can be"
    sockets[-1].send(misplaced.SerializeToString())
    page.wait_for_function("!window.before", timeout=60_000)
    wait_for_points(page, 4)
    go.touch()
    status_is(page, "Measured")
    context.close()
    assert ["Bad delta path index 99" in error for error in errors] == [True]
    assert stored_runs(private_home) == [("done", {16}, 12)]


def test_widgets_touched_while_a_sweep_runs_leave_it_alone(chromium_page, held_app, private_home, tmp_path):
    """F23."""
    page = chromium_page
    url, go = held_app(SIX + "&live=false")
    page.goto(url)
    run(page)
    wait_for_points(page, 2)
    slide(page, "heads", -8)
    page.get_by_text("the form differs from the run shown").wait_for()
    page.locator(".st-key-causal label").click()
    page.get_by_role("button", name="Queue").wait_for()
    assert page.get_by_role("button", name="Stop").is_enabled()
    go.touch()
    status_is(page, "Measured")
    assert stored_runs(private_home) == [("done", {16}, 12)]
    log = (tmp_path / "server.log").read_text()
    assert "missing ScriptRunContext" not in log and "Traceback" not in log


@pytest.fixture
def two_tabs(chromium_page, held_app):
    """(first, second, go): two tabs that watch one run."""
    first, second, (url, go) = chromium_page, chromium_page.context.new_page(), held_app(SIX)
    first.goto(url)
    wait_for_points(first, 4)
    second.goto(first.url.partition("?")[0])  # names no sweep: it is shown the one that runs
    wait_for_points(second, 4)
    return first, second, go


def test_of_two_tabs_that_share_a_run_neither_ends_it_for_the_other(two_tabs, private_home):
    first, second, go = two_tabs
    slide(second, "heads", -8)
    status_is(second, "Queued, 1 run ahead")
    go.touch()
    status_is(first, "Measured")
    status_is(second, "Measured")
    runs = stored_runs(private_home)
    assert runs[0] == ("done", {8}, 12) and runs[-1] == ("done", {16}, 12)
    assert {state for state, _, _ in runs[1:-1]} <= {"cancelled"}, "what the slider passed by"


def test_a_tab_that_was_closed_keeps_no_run_alive(two_tabs, private_home, tmp_path):
    first, second, go = two_tabs
    assert "created with a default value" not in (tmp_path / "server.log").read_text()
    first.goto("about:blank")
    slide(second, "heads", 1)
    limit = time.monotonic() + 60
    while len(stored_runs(private_home)) < 2:  # until then the status line is that of the first run
        assert time.monotonic() < limit
        second.wait_for_timeout(50)
    status_is(second, "Measuring: quick pass · 5 of 12")  # held there, and not behind the other
    go.touch()
    status_is(second, "Measured")
    assert [state for state, _, _ in stored_runs(private_home)] == ["done", "cancelled"]


def test_stop_ends_a_running_sweep(chromium_page, held_app, private_home):
    page = chromium_page
    page.goto(held_app(SIX + "&live=false")[0])
    run(page)
    wait_for_points(page, 2)
    pressed = time.monotonic()
    page.get_by_role("button", name="Stop").click()
    status_is(page, "Cancelled")
    assert time.monotonic() - pressed < 5, "a limit of the field case, not a measurement"
    ((state, _, count),) = stored_runs(private_home)
    assert state == "cancelled" and 2 <= count < 12


def test_ctrl_enter_runs(chromium_page, fake_app):
    page = chromium_page
    page.goto(fake_app(SIX + "&live=false"))
    page.locator(".st-key-run button:enabled").wait_for()
    page.keyboard.press("Control+Enter")
    status_is(page, "Measured")


def test_the_real_worker_draws_both_curves(chromium_page, start_app):
    query = "?seq=256&heads=2&head_dim=32&dtype=float32&direction=forward&within=5"
    chromium_page.goto(start_app(ROOT / "app.py", query=query))
    status_is(chromium_page, "Measured", timeout=90_000)
    assert points(chromium_page) == 4


def test_a_first_visit_to_the_address_of_a_page_finds_the_app(chromium_page, fake_app):
    """Streamlit's automatic pages would run pages/live.py alone until a session has run the navigation."""
    chromium_page.goto(fake_app().rstrip("/") + "/live" + SIX)
    status_is(chromium_page, "Measured")
    assert chromium_page.title() == "AttnLab"


def test_a_page_opened_before_the_device_is_known_can_measure_once_it_is(chromium_page, fake_app, tmp_path):
    from playwright.sync_api import expect  # where there is none, these tests are skipped

    url, buttons = fake_app(start_file=str(tmp_path / "go")), []
    pages = {"claims": "Test all that can be tested here", "exactness": "Check", "explain": "Measure the kernels"}
    for address, name in pages.items():
        tab = chromium_page.context.new_page()
        tab.goto(f"{url}/{address}")
        buttons.append(tab.get_by_role("button", name=name))
        expect(buttons[-1]).to_be_disabled(timeout=60_000)
    (tmp_path / "go").touch()
    for button in buttons:
        expect(button).to_be_enabled(timeout=60_000)


FIRST_INSIDE = """([width, height]) => {
    const boxes = [...document.querySelectorAll('.attnlab-chart')].slice(0, 3).map((chart) => chart.getBoundingClientRect());
    return boxes.length === 3 && boxes.every((box) => box.top > 0 && box.bottom <= height && box.right <= width);
}"""


@pytest.mark.skipif(not hasattr(st, "grid"), reason="Streamlit 1.65, the last for Python 3.10, pads the page more")
def test_the_first_screen_holds_the_sentence_and_the_curves(chromium_page, fake_app):
    page = chromium_page
    page.goto(fake_app(kind="cpu"))
    status_is(page, "Measured")
    for width, height in ((1920, 1080), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FIRST_INSIDE, arg=[width, height])
        sentence = page.get_by_test_id("stHtml").locator("p").first
        assert sentence.bounding_box()["y"] > 0 and "flash is" in sentence.inner_text()
        overflow = "document.querySelector('[data-testid=stMain]').scrollWidth - window.innerWidth"
        assert page.evaluate(overflow) <= 0


def test_a_link_opens_a_recorded_run_and_leads_back_to_the_form(chromium_page, fake_app):
    page = chromium_page
    page.goto(fake_app("?replay=h200&picked_seq=4096"))
    status_is(page, "recorded on NVIDIA H200, 20")
    at = page.locator("[class*=st-key-picked_seq] input")
    page.wait_for_function("(input) => input.value === 'Compare at 4,096'", arg=at.element_handle())
    assert page.url.endswith("?replay=h200&picked_seq=4096")
    assert page.locator(".st-key-recorded_heads input[type=range]").is_disabled()
    page.locator(".st-key-replay input").click()
    page.get_by_role("option", name="Measure on this machine").click()
    status_is(page, "Measured")
    page.wait_for_url(re.compile(r"dtype=bfloat16"))
    assert "replay" not in page.url
    page.wait_for_function("document.querySelector('.st-key-heads input[type=range]')?.value === '32'")
