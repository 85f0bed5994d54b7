"""What tests of pages share beside the fixtures of conftest.py."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamlit.testing.v1 import AppTest

LIMIT_S = 60.0


def until(page: AppTest, ready: Callable[[AppTest], bool], said: Callable[[AppTest], str]) -> AppTest:
    """Runs the page until `ready(page)`; fails after LIMIT_S with what the page then has `said`."""
    limit = time.monotonic() + LIMIT_S
    while True:
        page.run()
        assert not page.exception
        if ready(page):
            return page
        assert time.monotonic() < limit, said(page)
        time.sleep(0.1)
