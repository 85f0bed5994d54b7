"""What the lab and its worker say to each other: JSON objects, one a line, over the worker's stdin and stdout.

Lab → worker

    {"do": "measure", "id": 7, "problem": {…}, "paths": ["standard", "flash"], "phase": "quick", "budget_s": 0.5,
     "min_samples": 3, "target": 0.01, "l2": "cold"}
        One step: one problem, the same tensors through each path in turn. `budget_s` is the time the samples of each
        path may take, `target` the relative half width of the interval at which sampling stops. A quick visit begins the
        samples of a path anew, a refined one adds to them.
    {"do": "examine", "id": 9, "problem": {…}, "paths": ["standard", "flash"], "task": "exactness"}
        A look at the answers of each path (attnlab.finding). It answers as `measure` does.
    {"do": "compare", "id": 8, "problem": {…}, "flash": "flash", "steps": 5}
        Standard and the path `flash` back to back on the same tensors, `steps` rounds, wall clock with synchronisation.
    {"do": "ceilings"} or {"do": "ceilings", "matmul_tflops": [["bfloat16", 700.0], …], "copy_tbs": 4.2}
        Measure what the device reaches, and say so; or hold points to what was measured on it before.
    {"do": "cancel"}
        Abandon the step in flight at the next moment between two calls.

    The worker ends when its stdin ends.

Worker → lab

    {"event": "hello", "pid": 4711, "device": {…Device}, "paths": [{…PathStatus}, …]}     once, when it can measure
    {"event": "path", "status": {…PathStatus}}             what idle probing has learnt since
    {"event": "ceilings", "matmul_tflops": [["bfloat16", 700.0], …], "copy_tbs": 4.2}
    {"event": "waiting", "id": 7, "text": "…"}             another process holds the device
    {"event": "started", "id": 7, "path": "flash"}
    {"event": "compiling", "id": 7, "path": "flash", "text": "compiling flash-attn-4 …"}
    {"event": "running", "id": 7, "path": "flash"}         nothing is left to compile: the calls on the real tensors begin
    {"event": "measurement", "id": 7, "measurement": {…Measurement}}               one a path, whatever status
    {"event": "round", "id": 8, "step": 0, "standard_ms": 0.28, "flash_ms": 0.07, "provider": "…"}
        One round of a compare, from 0; {"event": "round", "id": 8, "step": 0, "reason": "…"} when a path cannot run.
    {"event": "done", "id": 7, "cancelled": false, "free_bytes": 123}                      the step's last event
    {"event": "fatal", "reason": "…"}                      it cannot go on and exits; one plain line for people

After a fault that leaves the device's context unusable the worker reports the path's measurement as `fault`, then
`fatal`. A worker that ends in the middle of a step without that left the path of its last `started` to blame.
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from attnlab.checked import check, json_value

# What an event must hold beside its name; hello, path and measurement hold what checks itself when it is read.
FIELDS = {
    "waiting": {"text": "str"},
    "started": {"path": "str"},
    "compiling": {"path": "str", "text": "str"},
    "running": {"path": "str"},
    "ceilings": {"matmul_tflops": "tuple[tuple[str, float], ...]", "copy_tbs": "float"},
    "fatal": {"reason": "str"},
}


def send(stream: TextIO, message: dict[str, Any]) -> None:
    """Writes one message. Raises ValueError for NaN and infinity (not JSON), OSError when the other side is gone."""
    stream.write(json.dumps(message, allow_nan=False, separators=(",", ":")) + "\n")
    stream.flush()


def parse(line: str) -> dict[str, Any] | None:
    """The message of one line; None when the line is not one JSON object (NaN and infinity are not JSON)."""
    try:
        message = json_value(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def check_event(message: dict[str, Any]) -> None:
    """Raises ValueError, which names what is legal, unless the event holds what events of its name hold."""
    event = message["event"]
    for name, declared in FIELDS.get(event, {}).items():
        check(message.get(name), declared, f"{event}'s {name}")
