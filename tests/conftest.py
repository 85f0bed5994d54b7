"""What tests share: a private home for each, GPU and browser tests that skip with one clear line, and the fixtures

make_lab(**fake) -> lab
    A lab without a page, whose worker computes nothing and is in the mode `fake` (fake_worker.py); ends with the test.
page_lab(recorded) -> lab
    What the pages of an AppTest show; ends with the test.
start_app(script, env={}, query="") -> url
    A Streamlit server on 127.0.0.1 that ends with the test; its log is server.log in the test's tmp_path.
chromium_page
    A fresh page in headless Chromium. The test fails when a request leaves 127.0.0.1, or an error of the page is not caught.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

# How long a draw takes says how busy the machine is, and nothing about the program.
settings.register_profile("attnlab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("attnlab")

ROOT = Path(__file__).resolve().parents[1]
FAKE = [sys.executable, "-u", str(ROOT / "tests" / "fake_worker.py")]
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # what the page asks for elsewhere cannot be there
]
START_LIMIT_S = 60.0

# Every test has a folder of its own for what is temporary; what one has compiled, the others need not compile again.
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor-tests-{os.getuid()}")
)


def chromium() -> str | None:
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


def components(page) -> list:
    """What draws something on an AppTest's page; that which says that the page has arrived is a component too."""
    return [part for part in page.get("bidi_component") if part.proto.component_name != "attnlab_arrival"]


def figure_of(chart) -> dict:
    """What a chart of an AppTest's page draws."""
    return json.loads(json.loads(chart.proto.json)[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    browser = [item for item in items if item.get_closest_marker("browser") or "chromium_page" in item.fixturenames]
    if gpu and not _cuda():  # torch is slow to import: only for tests that need it
        _skip(gpu, "needs an NVIDIA GPU that torch can use")
    if browser and importlib.util.find_spec("playwright") is None:
        _skip(browser, "needs playwright: pip install playwright")
    elif browser and chromium() is None:
        _skip(browser, f"needs Chromium, and none of {', '.join(CHROMIUM_NAMES)} is on the PATH")


def _skip(items: list[pytest.Item], reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def _cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def private_home(tmp_path, monkeypatch):
    """No test reads or writes the user's own runs, or waits for another's lock of a device."""
    home = tmp_path / "attnlab-home"
    monkeypatch.setenv("ATTNLAB_HOME", str(home))
    monkeypatch.setenv("ATTNLAB_LOCKS", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the processes that a test starts
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # for this one, which has read it long ago
    return home


@pytest.fixture
def make_lab(tmp_path, monkeypatch):
    """make_lab(die_at=["flash", 256], …, limits={…}): see the module's opening; `limits` are those of the lab."""
    from attnlab.lab import Lab
    from attnlab.store import Store

    labs: list[Lab] = []

    def make(limits=None, store=None, command=FAKE, **mode) -> Lab:
        monkeypatch.setenv("FAKE_WORKER", json.dumps(mode))
        labs.append(Lab(store or Store(tmp_path), worker_command=command, **(limits or {})))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()
        assert lab._supervisor.join(START_LIMIT_S)


@pytest.fixture
def page_lab(private_home, monkeypatch):
    """page_lab(recorded, real=False, **fake) -> the lab that the pages of an AppTest show, with these recorded runs by name.

    Its worker computes nothing and is in the mode `fake` (fake_worker.py), or it is `real`. Called again, the lab stays. All
    are closed with the test; `page_lab.labs` holds them.
    """
    from attnlab.lab import Lab
    from attnlab.store import Store
    from attnlab.ui import shell

    labs: list[Lab] = []

    def make(recorded: dict, real: bool = False, **fake) -> Lab:
        monkeypatch.setenv("FAKE_WORKER", json.dumps(fake))
        if not labs:
            labs.append(Lab(Store(private_home), worker_command=None if real else FAKE))
        monkeypatch.setattr(shell, "lab", lambda: labs[0])
        monkeypatch.setattr(shell, "recordings", lambda: (recorded, []))
        return labs[0]

    make.labs = labs
    yield make
    for lab in labs:
        lab.close()


@pytest.fixture
def start_app(tmp_path, private_home):
    servers: list[subprocess.Popen] = []

    def start(script: Path | str, env: dict[str, str] | None = None, query: str = "") -> str:
        port = _free_port()
        log = tmp_path / "server.log"
        with log.open("ab") as out:
            server = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)],
                cwd=ROOT,  # where .streamlit/config.toml is
                env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        servers.append(server)
        url = f"http://127.0.0.1:{port}"
        limit = time.monotonic() + START_LIMIT_S
        while not _healthy(url):
            if server.poll() is not None or time.monotonic() > limit:
                pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        return url + query

    yield start
    for server in servers:
        server.terminate()
    for server in servers:
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="session")
def chromium_browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture
def chromium_page(chromium_browser):
    context = chromium_browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(60_000)  # a busy machine is no failure
    outside: list[str] = []
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def see(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            outside.append(url)

    context.on("request", lambda request: see(request.url))
    page.on("websocket", lambda socket: see(socket.url))
    yield page
    context.close()
    assert outside == [], "requests left this machine"
    assert errors == [], "the page's own code failed"
