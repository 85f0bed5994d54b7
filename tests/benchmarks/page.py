"""What the page costs: `python tests/benchmarks/page.py`, the real app and worker, watched by headless Chromium.

Prints, each beside its target,
    first paint       from the start of the navigation to the browser's own first-contentful-paint
    form drawn        from there to every slider, the sentence and the figures being there; both for the first browser
                      after a server start, then for fresh ones with an empty cache
    libtorch          in the server's memory map
    warm worker       from a slider's key press to the frame with the first point of the run that it started
    point → visible   from the moment the lab stored a measurement to the frame in which the chart holds its number
    server CPU        user and system time of the server process alone over a sweep of half a minute, one browser there
Clocks: the store's events and the browser's Date.now(), which are one clock of one machine. The load average stands
beside the figures, because on few cores whatever else runs is measured too. Linux, for /proc.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from conftest import CHROMIUM_ARGS, chromium  # noqa: E402

from attnlab.run import Run  # noqa: E402
from attnlab.store import Store  # noqa: E402

# Put into the page before anything of its own: when the first paint was, and when each number was first in the chart.
WATCH = """
window.paintedMs = null;
window.seen = {};      // [path, seq, ms] → the same and Date.now() of the first frame that holds it
window.pressed = [];   // Date.now() of each key press
const rendered = (selector) => document.querySelector(selector)?.getBoundingClientRect().height > 0;
const parts = [".st-key-batch input[type=range]", ".st-key-head_dim input[type=range]",
    "[data-testid=stHtml] p", "[data-testid=stMetric]"];
const paint = () => {
    if (parts.every(rendered)) window.paintedMs = performance.now();
    else requestAnimationFrame(paint);
};
paint();
let watched = null;
const note = () => {
    for (const trace of watched.data ?? []) if (trace.uid.endsWith("-line")) trace.y.forEach((ms, i) => {
        const point = [trace.uid.slice(0, -"-line".length), trace.x[i], ms];
        if (ms !== null) window.seen[JSON.stringify(point)] ??= [...point, Date.now()];
    });
};
const watch = () => {
    const chart = document.querySelector('.attnlab-chart[aria-label^="Latency"]');
    if (chart && chart !== watched) {
        watched = chart;
        new MutationObserver(() => requestAnimationFrame(note)).observe(chart, {attributeFilter: ["data-updates"]});
    }
    requestAnimationFrame(watch);
};
watch();
document.addEventListener("keydown", () => window.pressed.push(Date.now()), true);
"""
SHAPE = "?heads=8&head_dim=64&dtype=float32&direction=forward"
SHORT = f"{SHAPE}&seq=1024"
LONG = f"{SHAPE}&seq=8192&live=false"


@contextmanager
def server(home: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """The app on a free port, ready to answer; (its process, its URL)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with (home / "server.log").open("wb") as log:
        env = {**os.environ, "ATTNLAB_HOME": str(home)}
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, (home / "server.log").read_text()
            try:
                urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield process, url
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[Page]:
    """The page in a fresh context: empty cache, new session."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(WATCH)
    page.goto(url, wait_until="commit")
    yield page
    context.close()


def first_paint_s(browser: Browser, url: str) -> tuple[float, float]:
    """(first contentful paint, the whole form drawn), from the start of the navigation."""
    with opened(browser, url) as page:
        page.wait_for_function("window.paintedMs !== null")
        paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        return paint_ms / 1e3, page.evaluate("window.paintedMs") / 1e3


def wait_until_measured(page: Page) -> None:
    page.locator(".st-key-status p").filter(has_text=re.compile("^Measured ")).first.wait_for()


def numbers(store: Store, run_id: str, page: Page) -> list[tuple[float, float | None]]:
    """Unix times (stored, in the chart) of every number of the run, oldest first; None for one that was never there. One that
    came twice, as from a worker that computes nothing, counts once."""
    shown_at = {(path, seq, ms): at_ms / 1e3 for path, seq, ms, at_ms in page.evaluate("Object.values(window.seen)")}
    stored: dict[tuple[str, int, float], float] = {}
    for at, kind, m in store.events(run_id):
        if kind == "measurement" and m["status"] == "ok":
            stored.setdefault((m["path"], m["seq_kv"], m["device_ms"]), at)
    return [(at, shown_at.get(number)) for number, at in stored.items()]


def by_second(points: list[tuple[float, float | None]], run: Run) -> None:
    """How late they were, by the second of the run in which they were stored: in the first all of an audience has just pressed
    Run."""
    began = datetime.fromisoformat(run.created).timestamp()
    for second in range(int(max(at for at, _ in points) - began) + 1):
        late_s = [shown_at - at for at, shown_at in points if shown_at and int(at - began) == second]
        if late_s:
            print(f"    second {second:2}: {summary(late_s)}")


def press_and_wait(page: Page, store: Store) -> tuple[str, float]:
    """One step of a slider; (the run that it started, seconds from the press to that run's first number on the chart)."""
    before = store.recent(1)[0].id
    thumb = page.locator(".st-key-heads input[type=range]")
    thumb.focus()
    thumb.press("ArrowRight")
    pressed_at = page.evaluate("window.pressed.at(-1)") / 1e3
    while True:
        time.sleep(0.1)
        run_id = store.recent(1)[0].id
        shown = [shown_at for _, shown_at in numbers(store, run_id, page) if shown_at] if run_id != before else []
        if shown:
            return run_id, min(shown) - pressed_at


def cpu_s(pid: int) -> float:
    """User and system time of a process, without its children: fields 14 and 15 of proc(5) stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(values_s: list[float]) -> str:
    ordered = sorted(values_s)
    p95 = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"median {statistics.median(ordered) * 1e3:,.0f} ms, p95 {p95 * 1e3:,.0f} ms, {len(ordered)} values"


def report(name: str, figure: str, target: str = "") -> None:
    load = os.getloadavg()[0]
    print(f"{name:<16} {figure}{f'; target {target}' if target else ''}  [load {load:.1f}]", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paints", type=int, default=7, help="fresh browsers after the first")
    parser.add_argument("--changes", type=int, default=6, help="slider changes, idle and again while a sweep runs")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        server(Path(folder)) as (process, url),
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGS)
        paint_s, form_s = first_paint_s(browser, url)
        report("first paint", f"{paint_s * 1e3:,.0f} ms, the first after a server start", "1,000 ms")
        report("form drawn", f"{form_s * 1e3:,.0f} ms, the first after a server start")
        delays_s: list[tuple[float, float | None]] = []
        with opened(browser, url + SHORT) as page:
            wait_until_measured(page)  # the worker is warm from here on
        paints_s = [first_paint_s(browser, url + SHORT) for _ in range(options.paints)]  # no other page draws meanwhile
        report("first paint", f"{summary([paint for paint, _ in paints_s])}, fresh browsers", "1,000 ms")
        report("form drawn", f"{summary([form for _, form in paints_s])}, fresh browsers")
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        report("libtorch", f"{maps.count('libtorch')} mappings in the server process", "0")

        with opened(browser, url + SHORT) as page:
            store = Store(folder)
            wait_until_measured(page)
            beside_s = [first_paint_s(browser, url + SHORT)[0] for _ in range(options.paints)]
            report("first paint", f"{summary(beside_s)}, beside a page that is open", "1,000 ms")
            idle_s, busy_s = [], []
            for _ in range(options.changes):
                run_id, delay_s = press_and_wait(page, store)
                idle_s.append(delay_s)
                wait_until_measured(page)
                delays_s += numbers(store, run_id, page)
            report("warm worker", f"{summary(idle_s)}, idle before", "500 ms")
            for _ in range(options.changes):
                busy_s.append(press_and_wait(page, store)[1])
            report("warm worker", f"{summary(busy_s)}, in the middle of another sweep")
            wait_until_measured(page)

        with opened(browser, url + LONG) as page:
            page.locator(".attnlab-chart[data-updates]").nth(2).wait_for()
            time.sleep(2)
            began, used_s = time.monotonic(), cpu_s(process.pid)
            page.locator(".st-key-run button:enabled").click()
            wait_until_measured(page)
            wall_s, used_s = time.monotonic() - began, cpu_s(process.pid) - used_s
            report("server CPU", f"{used_s / wall_s:.1%} of one core over {wall_s:.1f} s", "10 %")
            delays_s += numbers(store, store.recent(1)[0].id, page)

        seen_s = [shown_at - stored_at for stored_at, shown_at in delays_s if shown_at]
        unseen = len(delays_s) - len(seen_s)
        report("point → visible", f"{summary(seen_s)}, {unseen} refined before they were shown", "median 250 ms")
        store.close()
        browser.close()


if __name__ == "__main__":
    main()
