"""What a hall full of browsers costs: `python tests/benchmarks/browsers.py --browsers 25`, all watching one sweep.

Every browser is a real one, headless Chromium in a context and with processes of its own, that draws what it is sent: so
this wants a core for each of them. Where there are few cores, most of the audience can be sessions that draw
nothing (viewers.py): `--browsers 1 --sessions 24 --delay 0.12` asks what a browser among 25 sees. The default sweep of
this device, measured three times before without a page, each time in a fresh worker, is started by all browsers at once,
or by the first of them and joined by the others, who come `--over` some seconds.
Prints, beside their targets,

    point → visible   from the moment the lab stored a measurement to the frame that holds it, over all browsers, each from
                      its press on; and by the second of the run in which it was stored
    runs started      by all those presses of Run: one
    timings           of each point, solo and with the browsers; how far apart the solo runs are, and how far the interval of
                      the last lies outside those of the solo runs together; not with --delay

Ends with 1 when a target is missed. Linux, for /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import viewers
from page import ROOT, by_second, numbers, opened, report, server, summary, wait_until_measured
from playwright.sync_api import Page, TimeoutError, sync_playwright

sys.path.insert(0, str(ROOT / "tests/gpu"))

from conftest import CHROMIUM_ARGS, chromium
from repeat import one_run

from attnlab.run import Run
from attnlab.store import Store
from attnlab.units import ms, sequence

WITHIN_S = 1.0
LIMIT_MS = 60_000
IDLE_S = 10.0  # a worker has waited about so long when an audience presses Run, and a card at rest is another one


def outside(alone: list[tuple[float, float]], watched: tuple[float, float]) -> float:
    """How far an interval lies outside what the others span, as a share of their middle; 0 where they touch."""
    low, high = min(pair[0] for pair in alone), max(pair[1] for pair in alone)
    return max(watched[0] - high, low - watched[1], 0.0) / ((low + high) / 2)


@contextmanager
def told(pages: list[Page], store: Store, folder: Path) -> Iterator[None]:
    """What every browser says, and the server, where one of them waits in vain."""
    try:
        yield
    except TimeoutError:
        for number, page in enumerate(pages):
            texts = page.locator(".st-key-status p, .st-key-run button").all_inner_texts()
            print(f"browser {number}: {' | '.join(texts)!r}", file=sys.stderr)
        print(*((run.id, run.state, run.reason) for run in store.recent(5)), file=sys.stderr)
        print((folder / "server.log").read_text()[-3000:], file=sys.stderr)
        raise


def timings(alone: list[Run], watched: Run) -> int:
    """Prints a row for each point; how many lie further outside than the solo runs lie apart."""
    print(f"\n| path | sequence |{' solo |' * len(alone)} apart | watched | outside | clock MHz |")
    print(f"|---|---|{'---|' * len(alone)}---|---|---|---|")
    count = 0
    for m in watched.measurements:
        points = [run.get(m.path, m.seq) for run in alone]
        if not m.ok or not all(point and point.ok for point in points):
            continue
        times_ms = [point.device_ms for point in points]
        apart, off = max(times_ms) / min(times_ms) - 1, outside([point.interval_ms for point in points], m.interval_ms)
        count += off > apart
        row = [m.path, sequence(m.seq), *map(ms, times_ms), f"{apart:.1%}", ms(m.device_ms), f"{off:.1%}" if off else "–"]
        clocks = ", ".join(f"{point.clock_mhz or 0:,.0f}" for point in (*points, m))
        print(f"| {' | '.join(row)} | {clocks} |")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browsers", type=int, default=25)
    parser.add_argument("--sessions", type=int, default=0, help="more viewers, which draw nothing")
    parser.add_argument("--over", type=float, default=0.0, help="seconds over which the browsers come")
    parser.add_argument("--solo", type=int, default=3, help="runs without a page, to compare timings with")
    parser.add_argument("--delay", type=float, help="a worker that computes nothing and takes so many seconds for a step")
    options = parser.parse_args()
    query = "?live=false" if options.delay is None else viewers.QUERY
    if options.delay is not None:
        viewers.compute_nothing(options.delay)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, ExitStack() as stack:
        alone = [one_run(Path(folder) / f"solo-{i}", IDLE_S) for i in range(options.solo if options.delay is None else 0)]
        _, url = stack.enter_context(server(Path(folder)))
        store = Store(folder)
        stack.callback(store.close)
        pages = []
        for _ in range(options.browsers):
            browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGS)
            stack.callback(browser.close)
            pages.append(stack.enter_context(opened(browser, url + query)))
            pages[-1].set_default_timeout(LIMIT_MS)
        stack.enter_context(told(pages, store, Path(folder)))  # last: it ends while the browsers are still there
        for page in pages:
            page.locator(".attnlab-chart[data-updates]").nth(2).wait_for()
            page.locator(".st-key-run button:enabled").wait_for()
            page.get_by_text("The same run as a command line").wait_for()  # the last that a page draws
        others = None
        if options.sessions:
            pool = stack.enter_context(ThreadPoolExecutor())
            others = pool.submit(asyncio.run, viewers.watch(url, query, options.sessions, store))
            while not store.recent(1):  # they press when all of them are ready
                assert not others.done(), others.result()
                time.sleep(0.005)
        else:
            time.sleep(3)
        pressed = []
        for page in pages:
            pressed.append(time.time())
            page.evaluate("document.querySelector('.st-key-run button').click()")
            time.sleep(options.over / len(pages))
        for page in pages:
            wait_until_measured(page)
        time.sleep(2)  # for what is on its way
        if others:
            others.result()
        runs = store.recent(100)
        points = [
            (at, shown_at)
            for page, since in zip(pages, pressed, strict=True)
            for at, shown_at in numbers(store, runs[0].id, page)
            if at >= since
        ]
        late_s = [shown_at - at for at, shown_at in points if shown_at]
        p95_s = sorted(late_s)[int(0.95 * len(late_s))] if late_s else float("inf")
        report("point → visible", f"{summary(late_s)}, {len(points) - len(late_s)} refined before", "p95 1,000 ms")
        by_second(points, runs[0])
        report("runs started", f"{len(runs)}", "1")
        for run in runs[:-1]:  # what nobody asked for, beside the first
            print(f"    {run.id} {run.state} {run.reason}: {run.sweep.to_json()}")
        off = 0
        if alone:
            off = timings(alone, store.load(runs[0].id))
            report("\ntimings", f"{off} points further outside than {options.solo} solo runs lie apart", "0")
    return 0 if p95_s <= WITHIN_S and len(runs) == 1 and not off else 1


if __name__ == "__main__":
    sys.exit(main())
