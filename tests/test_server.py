"""The server from outside: tabs that close, a server that is interrupted or killed, two servers on one device.

A visitor here is a WebSocket that asks for the page, as a browser's tab does; no browser is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from test_lab import gone, wait_gone

from attnlab.lab import Lab
from attnlab.paths import PATHS, PathInfo
from attnlab.problem import AttentionProblem
from attnlab.store import Store
from attnlab.sweep import Sweep
from attnlab.ui import shell, status
from attnlab.ui.controls import Form

websockets = pytest.importorskip(
    "websockets.sync.client", reason="needs the websockets package, which Streamlit brings"
)

ROOT = Path(__file__).resolve().parents[1]
FAKE = shlex.join([sys.executable, "-u", str(ROOT / "tests" / "fake_worker.py")])
SHAPE = "batch=1&seq=512&heads=2&head_dim=32&dtype=float32&direction=forward"
LIMIT_S = 60.0
EARLY = ForwardMsg.ScriptFinishedStatus.FINISHED_EARLY_FOR_RERUN


class Tab:
    """A visitor's connection, which asks for the page."""

    def __init__(self, url: str, query: str = SHAPE, page: str = ""):
        self.open = contextlib.ExitStack()
        address = f"{url.replace('http', 'ws')}/_stcore/stream"
        connection = websockets.connect(address, subprotocols=["streamlit"], max_size=None, close_timeout=0.1)
        self.socket = self.open.enter_context(connection)
        self.query, self.page = query, page

    def ask(self, **said: str) -> None:
        """For a run of the whole page; `said`: id of a component and what it holds, as JSON."""
        message = BackMsg()
        message.rerun_script.query_string, message.rerun_script.page_name = self.query, self.page
        for key, value in said.items():
            message.rerun_script.widget_states.widgets.add(id=key, json_value=value)
        self.socket.send(message.SerializeToString())

    def answer(self) -> list[ForwardMsg]:
        """Everything up to the end of a run that was not cut short."""
        messages = []
        while (
            not messages
            or messages[-1].WhichOneof("type") != "script_finished"
            or messages[-1].script_finished == EARLY
        ):
            messages.append(ForwardMsg.FromString(self.socket.recv(timeout=LIMIT_S)))
        return messages

    def ask_until(self, true, what: str):
        """As the page's own fragments would: the first answer comes before the worker is there, and no run with it."""

        def asked():
            self.ask()
            time.sleep(0.2)
            return true()

        return until(asked, what)

    def close(self) -> None:
        self.open.close()


def until(true, what: str):
    """What true() is, once it is something; the runs that tests wait for end by themselves."""
    end = time.monotonic() + LIMIT_S
    while not (found := true()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


@pytest.fixture
def serve(start_app, tmp_path):
    """serve(**mode) → (URL, process id) of a server whose worker computes nothing, and is in that mode."""

    def start(**mode) -> tuple[str, int]:
        url = start_app(ROOT / "app.py", {"ATTNLAB_WORKER": FAKE, "FAKE_WORKER": json.dumps(mode)})
        port = int(url.rpartition(":")[2])
        return url, next(pid for pid in children(os.getpid()) if f"{port}" in command(pid))

    return start


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():  # of any of its threads
        found += map(int, (task / "children").read_text().split())
    return found


def command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def worker_of(server: int) -> int:
    return until(lambda: [pid for pid in children(server) if not gone(pid)], "the worker")[0]


def runs(home: Path):
    if not (home / "attnlab.db").exists():  # it is the server's to make
        return []
    store = Store(home)
    try:
        return store.recent()
    finally:
        store.close()


@pytest.mark.parametrize(
    ("how", "mode"), [(signal.SIGINT, {"delay_s": 0.2}), (signal.SIGKILL, {"hang_at": ["flash", 256]})]
)
def test_a_server_that_ends_leaves_no_worker_behind(serve, private_home, how, mode):
    url, server = serve(**mode)
    tab = Tab(url)
    tab.ask_until(lambda: runs(private_home), "the run")
    pid = worker_of(server)
    os.kill(server, how)
    wait_gone(pid)
    wait_gone(server)
    tab.close()
    (run,) = runs(private_home)
    assert run.state == "cancelled" and run.reason


def test_a_run_is_finished_when_every_tab_is_closed(serve, private_home):
    url, server = serve(delay_s=0.15)
    tabs = [Tab(url), Tab(url)]
    tabs[0].ask_until(lambda: runs(private_home), "the run")
    for tab in tabs:
        tab.close()
    (run,) = runs(private_home)
    assert run.active, "it was not over before"
    until(lambda: runs(private_home)[0].state == "done", "the end")
    store = Store(private_home)
    assert len(store.load(run.id).measurements) == run.sweep.point_count
    store.close()
    assert not gone(worker_of(server)), "and the next visitor finds it warm"


def test_a_second_server_on_the_device_is_told_who_holds_it_and_waits(tmp_path, monkeypatch):
    """Two labs with real workers, one of which measures without end. What is said stands in the page's status line."""
    monkeypatch.setenv("ATTNLAB_FAULTY", "1")
    monkeypatch.setitem(PATHS, "faulty-hang", PathInfo("faulty-hang", "faulty", ""))
    command = [sys.executable, "-m", "attnlab.worker", "--device", "cpu"]
    problem = AttentionProblem(batch=1, seq_q=512, heads=1, head_dim=16, dtype="float32")
    endless = Sweep(problem=problem, seqs=(512,), paths=("faulty-hang",), refine=False)
    quick = replace(endless, paths=("standard",))
    (tmp_path / "elsewhere").mkdir()
    other = ["env", f"TMPDIR={tmp_path / 'elsewhere'}", *command]  # as another user's
    first, second = (
        Lab(Store(tmp_path / name), worker_command=start, time_limit_s=600.0)
        for name, start in (("a", command), ("b", other))
    )
    try:
        first.submit(endless)
        until(lambda: "faulty-hang" in first.snapshot().run.activity, "the first server's call")
        holder = f"process {first._supervisor._process._popen.pid} is measuring on this device"
        run_id = second.submit(quick)
        until(lambda: holder in second.snapshot(run_id).run.activity, "the word of who holds it")
        snapshot = second.snapshot(run_id)
        assert holder in status.line(snapshot, snapshot.run, Form(quick))
        began = time.monotonic()
        second.cancel(run_id)
        until(lambda: second.snapshot().worker.state == "ready", "the end of the wait")
        assert time.monotonic() - began < 2.0
        run_id = second.submit(quick)
        until(lambda: holder in second.snapshot(run_id).run.activity, "the same word again")
        first.close()
        assert second.wait(run_id, LIMIT_S).get("standard", 512).ok
    finally:
        first.close()
        second.close()


def timers(messages: list[ForwardMsg]) -> list[ForwardMsg]:
    return [message for message in messages if message.WhichOneof("type") == "auto_rerun"]


def arrival(messages: list[ForwardMsg]):
    """(the component that says that the page has been drawn, the number of the visit, that of the last one drawn)."""
    elements = [message.delta.new_element.bidi_component for message in messages if message.HasField("delta")]
    (found,) = [element for element in elements if element.component_name == "attnlab_arrival"]
    return found.id, *json.loads(found.json)


def test_nothing_runs_by_itself_before_the_browser_has_drawn_the_page(serve):
    """The timers of a slow browser name a page that it no longer shows, and the answers emptied it."""
    url, _ = serve(delay_s=0.5)
    pages = [Path(script).stem for script, _ in shell.PAGES]
    with_timers = []
    for page in pages:
        with contextlib.closing(Tab(url, page="" if page == "live" else page)) as tab:
            tab.ask()
            first = tab.answer()
            key, visit, drawn = arrival(first)
            assert (page, timers(first), visit, drawn) == (page, [], 1, 0)
            tab.ask(**{key: json.dumps({"drawn": "nonsense"})})
            assert (page, timers(tab.answer())) == (page, [])
            tab.ask(**{key: json.dumps({"drawn": [visit, 0]})})
            if timers(tab.answer()):
                with_timers.append(page)
            tab.page = "memory" if page != "memory" else "claims"  # another page of the same tab
            tab.ask()
            other = tab.answer()
            assert (page, timers(other), *arrival(other)[1:]) == (page, [], 2, 1)
    assert {"live", "stage", "exactness"} <= set(with_timers)


def test_a_request_from_another_page_brings_no_file_in(start_app):
    """Streamlit's protection against cross-site requests: what comes without its token is turned away."""
    url = start_app("app.py") + "/_stcore/upload_file/a-session/a-file"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, data=b"x", method="PUT"), timeout=30)
    assert refused.value.code == 403
