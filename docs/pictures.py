"""Makes the pictures of the README from the running page: `python docs/pictures.py`, with Chromium on the PATH.

live-dark.png    the recorded GPU run, as a visitor of any machine can open it
point.png        one point of it, from close by
live-light.png   a run measured on this machine, just now
form.png         the form of that run
ladder.png       every path for one step of training, recorded
trip.png         standard attention's trip through memory, recorded, with the bytes that the hardware counted
stage.png        the step of the talk at which memory is full
tiles.png        flash's walk through the score matrix, half way
exactness.png    the recorded look at the answers
claims.png       the claims, judged by the recorded runs
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmarks"), str(ROOT / "tests")]

from conftest import CHROMIUM_ARGS, chromium  # noqa: E402
from page import server  # noqa: E402

SIZE = {"width": 1600, "height": 900}
LIMIT_MS = 180_000
TILES = "w_section=Tiles&w_batch=4&w_seq=1024&w_heads=32&w_head_dim=128&w_dtype=bfloat16&w_causal=true"
PAGES = {
    "ladder": "?replay=h200-llama-3-8b-training",
    "trip": "explain?w_show=h200-anatomy",
    "tiles": f"explain?{TILES}",
    "exactness": "exactness?show=NVIDIA+H200",
    "claims": "claims",
    "stage": "stage?step=2",
}
DARK = ("stage", "trip")
HALF_WAY = "slider => { slider.value = 20; slider.dispatchEvent(new Event('input', {bubbles: true})) }"


def drawn(page: Page) -> None:
    """Waits until all three charts and the table are there."""
    page.wait_for_function("document.querySelectorAll('.attnlab-chart .main-svg').length >= 3", timeout=LIMIT_MS)
    page.get_by_test_id("stDataFrame").first.wait_for(timeout=LIMIT_MS)
    page.wait_for_timeout(1500)


def main() -> None:
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGS)
        with server(Path(home)) as (_, url):
            dark = browser.new_context(viewport=SIZE, color_scheme="dark").new_page()
            dark.goto(f"{url}/?replay=h200")
            drawn(dark)
            dark.screenshot(path=ROOT / "docs" / "live-dark.png")
            dark.locator(".st-key-one_point").scroll_into_view_if_needed()
            dark.wait_for_timeout(3000)  # what is heavy has come, and nothing takes the list away again
            dark.locator("[class*=st-key-point_seq] input").click()
            dark.get_by_role("option", name="at 512", exact=True).click()
            dark.wait_for_timeout(3000)
            dark.locator(".st-key-one_point").scroll_into_view_if_needed()
            dark.wait_for_timeout(1500)
            dark.locator(".st-key-one_point").screenshot(path=ROOT / "docs" / "point.png")
            light = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
            light.goto(url)
            light.locator(".st-key-status p").filter(has_text=re.compile("^Measured ")).first.wait_for(timeout=LIMIT_MS)
            drawn(light)
            light.screenshot(path=ROOT / "docs" / "live-light.png")
            light.get_by_test_id("stSidebar").screenshot(path=ROOT / "docs" / "form.png")
            for name, address in PAGES.items():
                scheme = "dark" if name in DARK else "light"
                page = browser.new_context(viewport=SIZE, color_scheme=scheme).new_page()
                page.goto(f"{url}/{address}")
                page.wait_for_timeout(6000)
                if name == "tiles":
                    page.locator(".attnlab-tiles input[type=range]").evaluate(HALF_WAY)
                    page.wait_for_timeout(500)
                page.screenshot(path=ROOT / "docs" / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
