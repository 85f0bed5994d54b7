"""How long the list of runs takes to open when the store holds 100,000 points.

    python tests/benchmarks/runs.py --points 100000

It fills a store of its own as the lab does: runs of some hundred shapes on a few devices, 16 points each with their samples.
Then it prints what the list costs: the store opened (SQLite checks the whole file), the entries read, a search, and in
Chromium from the navigation until the table stands; once with all sentences written, once with none, as
after an upgrade; and the same page with an empty store, which is what Streamlit's table costs by itself.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sqlite3
import sys
import tempfile
import time
from dataclasses import replace
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
LOOKS = 5


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
    with transaction(store._db):
        for n in range(runs):
            sweep = Sweep(problem=chance.choice(shapes), seqs=SEQS, paths=PATHS)
            created = f"2026-{1 + n % 12:02}-{1 + n % 28:02}T{n % 24:02}:{n % 60:02}:00+00:00"
            run = Run(id=f"run-{n}", sweep=sweep, state="done", created=created, device=devices[n % 3], seconds=3.5)
            store._db.execute(INSERT_RUN, row_of(run))
            for path, seq in itertools.product(PATHS, SEQS):
                ms = seq * (3 if path == "standard" else 1) * (1 + 0.1 * chance.random()) / 1000
                samples = tuple(ms * (1 + 0.01 * chance.random()) for _ in range(SAMPLES))
                m = Measurement.of(sweep.at(seq), path, "ok", device_ms=ms, device_ms_low=ms, device_ms_high=1.01 * ms,
                                   samples=SAMPLES, samples_ms=samples, peak_bytes=seq << 10)  # fmt: skip
                store._db.execute(INSERT_EVENT, (run.id, float(n), "measurement", dump(m.to_json())))
    store.close()
    return runs


def timed(what: str, work, target: str = "") -> object:
    began = time.perf_counter()
    answer = work()
    taken_ms = (time.perf_counter() - began) * 1e3
    note = f"; target {target}" if target else ""
    print(f"{what:<34} {taken_ms:7,.0f} ms{note}  [load {os.getloadavg()[0]:.1f}]", flush=True)
    return answer


def table_ms(browser, url: str) -> float:
    """From the navigation until the table has been drawn, in a fresh context."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    page.goto(url, wait_until="commit")
    page.locator("[data-testid=stDataFrame] canvas").first.wait_for(timeout=60_000)
    taken = page.evaluate("performance.now()")
    context.close()
    return taken


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
            first = table_ms(browser, f"{url}/runs")
            print(f"page, the first after a start      {first:7,.0f} ms, sentences still to be written")
            timed("all sentences", lambda: store.describe(1e9))
            for _ in range(LOOKS):
                print(
                    f"page, until the table stands       {table_ms(browser, f'{url}/runs'):7,.0f} ms; target 1,000 ms"
                )
            with tempfile.TemporaryDirectory() as empty, server(Path(empty)) as (_, small):
                table_ms(browser, f"{small}/runs")
                for _ in range(LOOKS):
                    taken_ms = table_ms(browser, f"{small}/runs")
                    print(f"the same with an empty store       {taken_ms:7,.0f} ms  [load {os.getloadavg()[0]:.1f}]")
            browser.close()
        with sqlite3.connect(folder / "attnlab.db") as db:
            missing = db.execute("SELECT count(*) FROM runs WHERE sentence IS NULL").fetchone()[0]
        print(f"{missing:,} runs without a sentence")
        store.close()


if __name__ == "__main__":
    main()
