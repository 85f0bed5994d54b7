"""How long the list of runs takes to open when the store holds 100,000 points.

    python tests/benchmarks/runs.py --points 100000

It fills a store of its own as the lab does: runs of some hundred shapes on a few devices, 16 points each with their samples.
Then it prints what the list costs: the store opened (SQLite checks the whole file), the entries read, a search, and in
Chromium, each time in a fresh one with an empty cache, from the navigation, and from a click on the page's link in the menu
of another page, to the first frame in which the rows stand as text; before sentences are written, as after an upgrade, and
with all of them. Beside it what none of our pages can be faster than: when Streamlit's menu stands, and the same page with an
empty store. The clocks are the browser's own: who asks it from outside asks up to half a second late.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/benchmarks")]

from conftest import CHROMIUM_ARGS, chromium  # noqa: E402
from page import server  # noqa: E402
from samples import CPU, H200  # noqa: E402

from attnlab.database import transaction  # noqa: E402
from attnlab.history import chosen  # noqa: E402
from attnlab.measurement import Measurement  # noqa: E402
from attnlab.problem import AttentionProblem  # noqa: E402
from attnlab.run import Run  # noqa: E402
from attnlab.store import INSERT_EVENT, INSERT_RUN, Store, dump, row_of  # noqa: E402
from attnlab.sweep import Sweep, powers_of_two  # noqa: E402

PATHS = ("standard", "flash")
SEQS = powers_of_two(16_384)
SAMPLES = 20
LOOKS = 7
REST_MS = 1_500
VIEWPORT = {"width": 1280, "height": 720}
TARGET = "; target 1,000 ms"


def problems() -> list[AttentionProblem]:
    """Some hundred shapes."""
    axes = (
        (1, 2, 4, 8, 16),
        (8, 16, 32, 64),
        (64, 96, 128),
        ("float16", "bfloat16"),
        (False, True),
        ("forward", "backward"),
    )
    return [
        AttentionProblem(batch=b, seq_q=SEQS[-1], heads=h, head_dim=d, dtype=t, causal=c, direction=way)
        for b, h, d, t, c, way in itertools.product(*axes)
    ]


def fill(folder: Path, points: int) -> int:
    """Writes runs until there are so many points, in one transaction; returns how many runs."""
    store, chance, shapes = Store(folder), random.Random(0), problems()
    devices = [H200, replace(H200, name="NVIDIA A100", uuid="GPU-2"), CPU]
    runs = points // (len(PATHS) * len(SEQS))
    with transaction(store._keeper.db):
        for n in range(runs):
            sweep = Sweep(problem=chance.choice(shapes), seqs=SEQS, paths=PATHS)
            created = f"2026-{1 + n % 12:02}-{1 + n % 28:02}T{n % 24:02}:{n % 60:02}:00+00:00"
            run = Run(id=f"run-{n}", sweep=sweep, state="done", created=created, device=devices[n % 3], seconds=3.5)
            store._keeper.db.execute(INSERT_RUN, row_of(run))
            for path, seq in itertools.product(PATHS, SEQS):
                ms = seq * (3 if path == "standard" else 1) * (1 + 0.1 * chance.random()) / 1000
                samples = tuple(ms * (1 + 0.01 * chance.random()) for _ in range(SAMPLES))
                m = Measurement.of(sweep.at(seq), path, "ok", device_ms=ms, device_ms_low=ms, device_ms_high=1.01 * ms,
                                   samples=SAMPLES, samples_ms=samples, peak_bytes=seq << 10)  # fmt: skip
                store._keeper.db.execute(INSERT_EVENT, (run.id, float(n), "measurement", dump(m.to_json())))
    store.close()
    return runs


def timed(what: str, work, target: str = "") -> object:
    began = time.perf_counter()
    answer = work()
    taken_ms = (time.perf_counter() - began) * 1e3
    note = f"; target {target}" if target else ""
    print(f"{what:<34} {taken_ms:7,.0f} ms{note}  [load {os.getloadavg()[0]:.1f}]", flush=True)
    return answer


WATCH = """
window.stood = {};  // what → the time of the first frame that holds it
window.clickedMs = null;
const parts = {menu: "[data-testid=stTopNavLink]", rows: ".attnlab-runs tbody td:nth-child(2)",
    filters: "[data-testid=stMultiSelect]"};
const look = () => {
    for (const [what, selector] of Object.entries(parts)) {
        const part = document.querySelector(selector);
        if (part?.getBoundingClientRect().height > 0 && part.textContent) window.stood[what] ??= performance.now();
    }
    requestAnimationFrame(look);
};
look();
document.addEventListener("click", () => { window.clickedMs ??= performance.now(); }, true);
"""


@dataclass(frozen=True)
class Look:
    """Milliseconds from the navigation, or from the click in the menu, until something stands; the last of it the filters."""

    rows: float
    filters: float
    menu: float | None = None  # which a click does not draw anew

    def __str__(self) -> str:
        menu = "" if self.menu is None else f"menu {self.menu:,.0f}, "
        return f"{self.rows:7,.0f} ms ({menu}filters {self.filters:,.0f})"


def opened(browser, url: str) -> Look:
    """The list by its address, in a fresh context."""
    with closing(browser.new_context(viewport=VIEWPORT)) as context:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(f"{url}/runs", wait_until="commit")
        page.wait_for_function("stood.filters && stood.rows", timeout=60_000)
        return Look(**page.evaluate("stood"))


def clicked(browser, url: str) -> Look:
    """The list by the menu of another page that has come to rest."""
    with closing(browser.new_context(viewport=VIEWPORT)) as context:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(f"{url}/claims")
        page.wait_for_function("stood.menu", timeout=60_000)
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        page.wait_for_timeout(REST_MS)
        page.evaluate("stood = {}")
        page.get_by_role("link", name="Runs", exact=True).click()
        page.wait_for_function("stood.filters && stood.rows", timeout=60_000)
        since = page.evaluate("clickedMs")
        stood = page.evaluate("stood")
        return Look(rows=stood["rows"] - since, filters=stood["filters"] - since)


def looks(what: str, look, browser, url: str, target: str = "") -> None:
    """Prints LOOKS of them, and their median."""
    found = []
    for _ in range(LOOKS):
        found.append(look(browser, url))
        print(f"{what:<34} {found[-1]}{target}  [load {os.getloadavg()[0]:.1f}]", flush=True)
    print(f"{what + ', median':<34} {statistics.median(one.rows for one in found):7,.0f} ms{target}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        runs = fill(folder, options.points)
        mib = (folder / "attnlab.db").stat().st_size / 2**20
        print(f"{options.points:,} points in {runs:,} runs, {mib:,.0f} MiB")
        store = timed("store opened and checked", lambda: Store(folder))
        timed("sentences, 0.2 s of them", lambda: store.describe(0.2))
        timed("list, first time", store.entries, "1,000 ms")
        entries = timed("list, again", store.entries)
        timed("search in all of it", lambda: chosen(entries, "a100 float16 backward"))
        with server(folder) as (_, url), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGS)
            print(f"{'page, the first after a start':<34} {opened(browser, url)}, sentences still to be written")
            timed("all sentences", lambda: store.describe(1e9))
            looks("page, by its address", opened, browser, url, TARGET)
            looks("page, by a click in the menu", clicked, browser, url, TARGET)
            with tempfile.TemporaryDirectory() as empty, server(Path(empty)) as (_, small):
                opened(browser, small)
                looks("the same with an empty store", opened, browser, small)
            browser.close()
        with sqlite3.connect(folder / "attnlab.db") as db:
            missing = db.execute("SELECT count(*) FROM runs WHERE sentence IS NULL").fetchone()[0]
        print(f"{missing:,} runs without a sentence")
        store.close()


if __name__ == "__main__":
    main()
