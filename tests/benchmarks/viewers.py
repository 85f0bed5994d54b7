"""How late the last viewer sees a point: `python tests/benchmarks/viewers.py`, 25 sessions watching one sweep.

All have the page open and press Run at the same moment: one starts the sweep, the others join. Each session speaks
Streamlit's own protocol as a browser does, timers of fragments included, but draws nothing: 25 real browsers would measure
the machine that draws for them. The server is real; the worker computes nothing and answers every --delay seconds, so that
the points are those of the fan-out alone. Prints, beside their targets,

    point → session   from the moment the lab stored a measurement to the message that holds it, over all sessions
    runs started      by all those sessions: one
    server CPU        user and system time of the server process over the sweep
    memory            of the server process, before the first session, with all, and after they have gone

Ends with 1 when a target is missed. Linux, for /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import websockets
from page import ROOT, by_second, cpu_s, report, server, summary
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnlab.store import Store

WITHIN_S = 1.0
QUERY = "?heads=8&head_dim=64&seq=131072&paths=standard,flash,sdpa-flash,sdpa-math&live=false"


class Session:
    """One visitor."""

    def __init__(self, url: str, query: str):
        self.query = query.removeprefix("?")  # as a browser sends it
        self.url = url.replace("http://", "ws://") + "/_stcore/stream"
        self._charts: list[tuple[float, str]] = []  # read when all is over: reading takes longer than sending
        self._timers: dict[str, asyncio.Task] = {}
        self._run_id = ""  # of the button that runs the sweep, while it can be pressed
        self._socket: websockets.ClientConnection | None = None

    async def watch(self, done: asyncio.Event) -> None:
        async with websockets.connect(self.url, subprotocols=["streamlit"], max_size=None, origin=None) as socket:
            self._socket = socket
            await socket.send(self._rerun())
            reading, ended = asyncio.create_task(self._read(socket)), asyncio.create_task(done.wait())
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises what went wrong
            for timer in (reading, *self._timers.values()):
                timer.cancel()

    async def _read(self, socket: websockets.ClientConnection) -> None:
        async for message in socket:
            self._heard(heard := ForwardMsg.FromString(message), socket)
            if arrival := self._arrival(heard):
                await socket.send(self._rerun(arrived=arrival))

    @property
    def ready(self) -> bool:
        return bool(self._run_id and self._timers)  # once the page was drawn it looks by itself

    async def press(self) -> None:
        await self._socket.send(self._rerun(pressed=self._run_id))

    def _arrival(self, message: ForwardMsg) -> tuple[str, str] | None:
        """What a browser says of a page that it has drawn, as (component, state); None where it has said it."""
        component = message.delta.new_element.bidi_component
        if component.component_name != "attnlab_arrival":
            return None
        visit, heard = json.loads(component.json)
        return None if visit == heard else (component.id, json.dumps({"drawn": [visit, 0]}))

    def _rerun(self, fragment_id: str = "", pressed: str = "", arrived: tuple[str, str] | None = None) -> bytes:
        message = BackMsg()
        if pressed:
            message.rerun_script.widget_states.widgets.add(id=pressed, trigger_value=True)
        if arrived:
            message.rerun_script.widget_states.widgets.add(id=arrived[0], json_value=arrived[1])
        message.rerun_script.query_string = self.query
        if fragment_id:
            message.rerun_script.fragment_id = fragment_id
            message.rerun_script.is_auto_rerun = True
        return message.SerializeToString()

    def _heard(self, message: ForwardMsg, socket: websockets.ClientConnection) -> None:
        kind = message.WhichOneof("type")
        if kind == "auto_rerun":
            wanted = message.auto_rerun
            self._stop(wanted.fragment_id)
            self._timers[wanted.fragment_id] = asyncio.create_task(
                self._tick(socket, wanted.fragment_id, wanted.interval)
            )
        elif kind == "stop_auto_rerun":
            for fragment_id in message.stop_auto_rerun.fragment_ids:
                self._stop(fragment_id)
        elif kind == "delta" and message.delta.new_element.WhichOneof("type") == "button":
            button = message.delta.new_element.button
            if button.label == "Run":
                self._run_id = "" if button.disabled else button.id
        elif kind == "delta" and message.delta.new_element.WhichOneof("type") == "bidi_component":
            component = message.delta.new_element.bidi_component
            self._charts.append((time.time(), component.json or component.mixed.json))

    def _stop(self, fragment_id: str) -> None:
        if fragment_id in self._timers:
            self._timers.pop(fragment_id).cancel()

    async def _tick(self, socket: websockets.ClientConnection, fragment_id: str, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await socket.send(self._rerun(fragment_id))

    def seen(self) -> dict[tuple[str, int, float], float]:
        """(path, seq, ms) → Unix time of the first message whose latency chart holds it."""
        first: dict[tuple[str, int, float], float] = {}
        for at, text in self._charts:
            for trace in traces(json.loads(text)) if "Latency" in text else ():
                if str(trace.get("uid", "")).endswith("-line"):
                    path = trace["uid"].removesuffix("-line")
                    for seq, ms in zip(trace.get("x", ()), trace.get("y", ()), strict=False):
                        if ms is not None:
                            first.setdefault((path, seq, ms), at)
        return first


def traces(found: object) -> list[dict]:
    """The traces of a figure, wherever it stands in what a component was given."""
    if isinstance(found, str) and found.startswith("{"):
        return traces(json.loads(found))
    if isinstance(found, dict) and isinstance(found.get("data"), list) and "layout" in found:
        return [trace for trace in found["data"] if isinstance(trace, dict)]
    children = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return [trace for child in children for trace in traces(child)]


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def watch(url: str, query: str, viewers: int, store: Store) -> tuple[list[Session], str]:
    """All sessions, which press Run at once when all are ready, until the run has ended; (sessions, the run's id)."""
    sessions, done = [Session(url, query) for _ in range(viewers)], asyncio.Event()
    tasks = [asyncio.create_task(session.watch(done)) for session in sessions]
    began = time.monotonic()
    while not all(session.ready for session in sessions):
        assert time.monotonic() - began < 60, "the page cannot run a sweep"
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)  # for what else a page draws at first
    await asyncio.gather(*(session.press() for session in sessions))
    while not (runs := store.recent(1)) or runs[0].active:
        assert time.monotonic() - began < 300, "no run has ended"
        await asyncio.sleep(0.2)
    await asyncio.sleep(2)  # for what is on its way
    done.set()
    await asyncio.gather(*tasks)
    return sessions, runs[0].id


def compute_nothing(delay_s: float) -> None:
    """Has servers that are started from here answer so long after each question, in place of measuring."""
    os.environ["ATTNLAB_WORKER"] = f"{sys.executable} -u {ROOT / 'tests/fake_worker.py'}"
    os.environ["FAKE_WORKER"] = json.dumps({"kind": "cpu", "delay_s": delay_s})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=25)
    parser.add_argument("--delay", type=float, default=0.6, help="seconds that the worker takes for a step")
    viewers, delay_s = (options := parser.parse_args()).viewers, options.delay
    compute_nothing(delay_s)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTNLAB_LOCKS"] = folder
        with server(Path(folder)) as (process, url):
            store = Store(folder)
            alone_mib, used_s, began = resident_mib(process.pid), cpu_s(process.pid), time.monotonic()
            sessions, run_id = asyncio.run(watch(url, QUERY, viewers, store))
            used_s, wall_s = cpu_s(process.pid) - used_s, time.monotonic() - began
            together_mib = resident_mib(process.pid)
            stored: dict[tuple[str, int, float], float] = {}  # a refined point has the same numbers here
            for at, kind, m in store.events(run_id):
                if kind == "measurement" and m["status"] == "ok":
                    stored.setdefault((m["path"], m["seq_kv"], m["device_ms"]), at)
            seen = [session.seen() for session in sessions]
            points = [(at, first.get(key)) for first in seen for key, at in stored.items()]
            late_s = [seen_at - at for at, seen_at in points if seen_at]
            unseen = len(points) - len(late_s)
            ordered = sorted(late_s)
            p95_s = ordered[int(0.95 * len(ordered))] if ordered else float("inf")
            report("point → session", f"{summary(late_s)}, {unseen} never sent", "p95 1,000 ms")
            by_second(points, store.load(run_id))
            started = len(store.recent(100))
            report("runs started", f"{started}", "1")
            report("server CPU", f"{used_s / wall_s:.0%} of one core over {wall_s:.0f} s, {viewers} sessions")
            report("memory", f"{alone_mib:,.0f} MiB alone, {together_mib:,.0f} MiB with {viewers} sessions")
            store.close()
    return 0 if p95_s <= WITHIN_S and started == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
