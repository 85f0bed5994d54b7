"""PNG and SVG of charts, by the machine's own browser in a child process, within a time limit.

    making = Making(figures)      returns at once
    making.files                  {"latency.png": bytes, …} when it is done
    making.trouble                or why there are none, in one line that says what is left

The browser opens a page from a folder of its own, fetches nothing, and is ended when it takes too long.
"""

from __future__ import annotations

import base64
import html
import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes

from attnlab import browser
from attnlab.chart_style import Figure
from attnlab.html_page import printing_page, settled, shown_only

LIMIT_S = 9.0  # what it takes to say that there is none is within 10 s
AT_ONCE = 2  # a browser takes a core and some 300 MB
FORMATS = ("png", "svg")
PNG_SCALE = 2  # pixels of the picture for one of the chart
VIRTUAL_MS = 60_000  # of the page's own clock, which runs ahead while nothing happens
REST = "HTML, with the camera of each chart, and all other formats are there without it"
NO_BROWSER = f"PNG and SVG need Chromium or Chrome, and none of {', '.join(browser.NAMES)} is on the PATH. {REST}."


_slots = threading.BoundedSemaphore(AT_ONCE)


class NoPicture(Exception):
    """Why there is no picture, in one line for people."""


def pictures(figures: Mapping[str, Figure], theme: str = "light") -> dict[str, bytes]:
    """{"latency.png": …, "latency.svg": …, …}. Blocks for LIMIT_S at the most. Raises NoPicture."""
    program = browser.find()
    if program is None:
        raise NoPicture(NO_BROWSER)
    if not figures:
        raise NoPicture("this run has no chart")
    if not _slots.acquire(blocking=False):
        raise NoPicture(f"{AT_ONCE} browsers are drawing already; press again in some seconds. {REST}.")
    try:
        ended = _printed(program, {name: settled(shown_only(figure), theme) for name, figure in figures.items()})
    finally:
        _slots.release()
    found = re.search(r'<pre id="pictures">(.*?)</pre>', ended.out, re.DOTALL)
    if ended.code != 0 or not found or not found[1]:
        raise NoPicture(f"{program} made no picture (exit code {ended.code}: {ended.last_words}). {REST}.")
    return {name: decoded(url) for name, url in json.loads(html.unescape(found[1])).items()}


def _printed(program: str, drawn: Mapping[str, Figure]) -> browser.Ended:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        page = folder / "charts.html"
        page.write_text(printing_page(drawn, FORMATS, PNG_SCALE), encoding="utf-8")
        words = [f"--virtual-time-budget={VIRTUAL_MS}", "--dump-dom", page.as_uri()]
        try:
            return browser.run(program, words, folder, LIMIT_S)
        except subprocess.TimeoutExpired:
            raise NoPicture(f"{program} made no picture within {LIMIT_S:g} s and was ended. {REST}.") from None
        except OSError as error:
            raise NoPicture(f"{program} cannot be started ({error}). {REST}.") from None


def decoded(url: str) -> bytes:
    """What a data: URL holds."""
    head, _, body = url.partition(",")
    return base64.b64decode(body) if head.endswith(";base64") else unquote_to_bytes(body)


class Making:
    """Pictures in the making, on a thread that nobody waits for. `files` and `trouble` are set once, before `done` is."""

    def __init__(self, figures: Mapping[str, Figure], theme: str = "light"):
        self.files: dict[str, bytes] = {}
        self.trouble = "" if browser.find() else NO_BROWSER  # said at once
        self._done = threading.Event()
        if self.trouble:
            self._done.set()
        else:
            threading.Thread(target=self._make, args=(figures, theme), name="attnlab-pictures", daemon=True).start()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._done.wait(timeout)

    def _make(self, figures: Mapping[str, Figure], theme: str) -> None:
        try:
            self.files = pictures(figures, theme)
        except NoPicture as error:
            self.trouble = str(error)
        finally:
            self.trouble = self.trouble or ("" if self.files else f"the pictures could not be made. {REST}.")
            self._done.set()
