"""A worker without torch that speaks the protocol, for tests of the lab: `python tests/fake_worker.py`.

It computes nothing: times follow from FLOPs at a made-up rate. FAKE_WORKER, a JSON object in the environment, says how
it misbehaves; "at" values are [path, seq] or "everywhere", and what happens there happens at every visit.

    kind         "cuda" (as one H200) or "cpu"                      uuid
    missing      names of paths that are not here
    free_bytes   what hello says is free                            free_after   what done says
    delay_s      so long takes each path                            start_s      so long takes the start
    oom_at, unsupported_at, suspect_fast_at                         the point has that status; the last reports 1e-6 ms
    die_at, exit_at, hang_at, fault_at                              SIGKILL, exit 7, silence, fault + fatal
    compile_at, compile_s; forget_at                                compiling for so long; no measurement
    die_after, die_refined, hang_refined                            SIGKILL after its measurement; either in refinement
    half_line_at, flood_at                                          half a measurement and exit 5; garbage without end
    gone_at, gone_file                                              the driver is lost; from then on the worker is on a CPU
    die_at_start, fatal_at_start, garbage, half_line                true
    lost                                                            {"how", "file", "at"}: see CANNOT_START
    escape, stray                                                   a child holds the output; uncalled-for measurements
    start_file                                                      the start waits for this file
    hold                                                            {"at", "file"}: the point waits for this file
    waiting_s                                                       so long another program holds the device
    faults                                                          {"share", "log"}: at random points one of ACCIDENTS
    outlier_at, no_graph_at, throttle_at                            one more sample, left out; no CUDA graph; a slow clock
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attnlab import cost, protocol
from attnlab.device import Device, PathStatus
from attnlab.finding import Finding
from attnlab.measurement import Measurement
from attnlab.paths import PATHS
from attnlab.problem import AttentionProblem

MODE = json.loads(os.environ.get("FAKE_WORKER", "{}"))
TFLOPS = {"standard": 60.0}
OTHER_TFLOPS = 400.0
FREE_BYTES = MODE.get("free_bytes", 140 << 30)

ACCIDENTS = ("die_at", "exit_at", "fault_at", "half_line_at", "forget_at", "oom_at", "hang_at")

# What a worker that cannot start says, and how it ends, while the file is there; one that is killed at that point makes it.
CANNOT_START = {
    "torch": ("fatal", "PyTorch cannot be loaded: No module named 'torch'"),
    "driver": ("fatal", "the device cannot be used: No CUDA GPUs are available\nand a second line"),
    "connection": ("exit", "ssh: connect to host gpu-box port 22: Connection refused"),
}

commands: queue.Queue[dict[str, Any]] = queue.Queue()
cancel = threading.Event()


def say(event: str, **fields: Any) -> None:
    protocol.send(sys.stdout, {"event": event, **fields})


def listen() -> None:
    for line in sys.stdin:
        command = protocol.parse(line)
        if command and command["do"] == "cancel":
            cancel.set()
        elif command:
            commands.put(command)
    os._exit(0)


def device() -> Device:
    cuda = MODE.get("kind", "cuda") == "cuda" and not os.path.exists(MODE.get("gone_file", ""))
    return Device(
        kind="cuda" if cuda else "cpu",
        name="NVIDIA H200" if cuda else "Fake CPU",
        uuid=os.environ.get("CUDA_VISIBLE_DEVICES") or MODE.get("uuid", "fake-0"),
        total_bytes=141 << 30,
        free_bytes=FREE_BYTES,
        torch="fake",
    )


accident = ""  # what happens at the path that is being measured


def here(mode: str, path: str, seq: int, modes: dict[str, Any] = MODE) -> bool:
    return modes.get(mode) in ([path, seq], "everywhere") or mode == accident


def draw_accident(problem: AttentionProblem, path: str) -> str:
    """The same for a point whenever it is asked; written to the log before it happens."""
    faults = MODE.get("faults")
    dice = random.Random(f"{problem.batch} {problem.seq_kv} {path}")
    if not faults or dice.random() >= faults["share"]:
        return ""
    kind = dice.choice(ACCIDENTS)
    with open(faults["log"], "a") as log:
        print(json.dumps([problem.batch, problem.seq_kv, path, kind]), file=log)
    return kind


def nap(seconds: float) -> None:
    """Ends early when cancelled."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not cancel.is_set():
        time.sleep(min(0.01, seconds))


def looked(problem: AttentionProblem, path: str, command: dict[str, Any]) -> Measurement:
    found = Finding(what="O", verdict="pass", text=command["task"], values={"relative": 1e-3})
    return Measurement.of(problem, path, "ok", provider="fake", findings=(found,))


def measured(problem: AttentionProblem, path: str, command: dict[str, Any]) -> Measurement:
    if command["do"] == "examine":
        return looked(problem, path, command)
    ms = cost.flops(problem) / TFLOPS.get(path, OTHER_TFLOPS) / 1e9 + 0.01
    if here("suspect_fast_at", path, problem.seq_kv):
        ms = 1e-6
    samples = [ms] * command["min_samples"]
    outlier = here("outlier_at", path, problem.seq_kv)
    no_graph = here("no_graph_at", path, problem.seq_kv)
    throttled = here("throttle_at", path, problem.seq_kv)
    notes = ["1 sample kept out: it says something else"] * outlier + ["cannot be captured as a graph"] * no_graph
    on_a_card = {
        "graph_ms": None if no_graph else 1.02 * ms, "l2": command.get("l2", "cold"), "clock_mhz": 1900.0,
        "clock_mhz_low": 1200.0 if throttled else 1890.0, "clock_mhz_high": 1980.0, "power_w": 650.0,
        "temperature_c": 61.0, "throttle": ("power cap",) if throttled else (),
    } if MODE.get("kind", "cuda") == "cuda" else {}  # fmt: skip
    return Measurement(
        problem=problem, path=path, status="ok", provider="fake", phase=command["phase"], device_ms=ms,
        device_ms_low=ms * 0.95, device_ms_high=ms * 1.05, samples=len(samples), samples_ms=(*samples, *[9 * ms] * outlier),
        unused=(len(samples),) * outlier, wall_ms=2 * ms, host_ms=0.004, dense_flops=cost.dense_flops(problem),
        first_call_s=ms / 1e3, peak_bytes=cost.predicted_peak_bytes(problem, path), flops=cost.flops(problem),
        min_bytes=cost.min_bytes(problem), clock="made up", memory_source="made up",
        notes=tuple(notes), **on_a_card,
    )  # fmt: skip


def measure(command: dict[str, Any]) -> None:
    step, problem = command["id"], AttentionProblem.from_json(command["problem"])
    seq = problem.seq_kv

    def report(m: Measurement) -> None:
        say("measurement", id=step, measurement=m.to_json())

    if MODE.get("waiting_s"):
        say("waiting", id=step, text="another program measures on this device")
        nap(MODE["waiting_s"])
    for path in command["paths"]:
        if cancel.is_set():
            break
        say("started", id=step, path=path)
        global accident
        accident = draw_accident(problem, path)
        if MODE.get("garbage"):
            print("Warning: a library prints to stdout", "[1, 2", '{"event": "nobody knows this"}', "NaN", sep="\n")
            print('{"event": "measurement", "id": %d, "measurement": {"device_ms": NaN}}' % step, flush=True)  # noqa: UP031
        if here("compile_at", path, seq):
            say("compiling", id=step, path=path, text=f"compiling {path}")
            nap(MODE["compile_s"])
        say("running", id=step, path=path)
        if here("die_at", path, seq) or (here("die_refined", path, seq) and command.get("phase") == "refined"):
            print("some unrelated warning", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if here("at", path, seq, MODE.get("lost", {})):
            Path(MODE["lost"]["file"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if here("half_line_at", path, seq):
            print('{"event": "measurement", "id": %d, "measure' % step, end="", flush=True)  # noqa: UP031
            os._exit(5)
        if here("flood_at", path, seq):
            os.execvp("yes", ["yes", "[1, 2"])  # faster than Python, whoever reads it
        if here("exit_at", path, seq):
            print("RuntimeError: the last words", file=sys.stderr, flush=True)
            os._exit(7)
        if here("hang_at", path, seq) or (here("hang_refined", path, seq) and command.get("phase") == "refined"):
            time.sleep(3600)
        while here("at", path, seq, MODE.get("hold", {})) and not Path(MODE["hold"]["file"]).exists() and not cancel.is_set():
            nap(0.02)
        nap(MODE.get("delay_s", 0.0))
        if cancel.is_set():
            break
        m = measured(problem, path, command)
        if here("forget_at", path, seq):
            continue
        if here("fault_at", path, seq) or here("gone_at", path, seq):
            reason = "CUDA fault: device-side assert triggered"
            if here("gone_at", path, seq):
                reason = "CUDA error: no CUDA-capable device is detected"
                Path(MODE["gone_file"]).touch()
            report(Measurement.of(problem, path, "fault", reason=reason))
            say("fatal", reason=reason)
            sys.exit(3)
        for status in ("oom", "unsupported"):
            if here(f"{status}_at", path, seq):
                m = Measurement.of(problem, path, status, reason=f"fake {status}")
        report(m)
        if MODE.get("stray"):
            report(m)  # twice
            report(replace(m, path="sdpa-math"))
            report(replace(m, problem=replace(problem, batch=problem.batch + 1)))
        if here("die_after", path, seq):
            os.kill(os.getpid(), signal.SIGKILL)
    say("done", id=step, cancelled=cancel.is_set(), free_bytes=MODE.get("free_after", FREE_BYTES))


def main() -> None:
    threading.Thread(target=listen, daemon=True).start()
    time.sleep(MODE.get("start_s", 0.0))
    while "start_file" in MODE and not Path(MODE["start_file"]).exists():
        time.sleep(0.05)
    if MODE.get("die_at_start"):
        print("ModuleNotFoundError: No module named 'torch'", file=sys.stderr, flush=True)
        os._exit(1)
    if MODE.get("fatal_at_start"):
        say("fatal", reason="PyTorch is not installed; run make run")
        os._exit(3)
    if os.path.exists(MODE.get("lost", {}).get("file", "")):
        how, words = CANNOT_START[MODE["lost"]["how"]]
        if how == "exit":
            print(words, file=sys.stderr, flush=True)
            os._exit(255)
        say("fatal", reason=words)
        os._exit(3)
    if MODE.get("escape"):
        subprocess.Popen(["sleep", "60"], stdout=sys.stdout)
    missing = MODE.get("missing", [])
    paths = [
        PathStatus(name=name, state="missing", reason="not here")
        if name in missing
        else PathStatus(name=name, state="untested", provider="fake")
        for name in PATHS
    ]
    say("hello", pid=os.getpid(), device=device().to_json(), paths=[vars(status) for status in paths])
    say("path", status=vars(replace(paths[0], state="ready")))
    while True:
        command = commands.get()
        if command["do"] == "ceilings":
            if "matmul_tflops" not in command:
                if MODE.get("ceilings_wait_s"):
                    say("waiting", id=None, text="another program measures on this device")
                    time.sleep(MODE["ceilings_wait_s"])
                say(
                    "ceilings",
                    matmul_tflops=[["bfloat16", 700.0], ["float32", 50.0]],
                    copy_tbs=MODE.get("ceilings_tbs", 4.2),
                )
            continue
        if MODE.get("half_line"):
            sys.stdout.write('{"event": "measure')
            sys.stdout.flush()
            os._exit(5)
        measure(command)
        cancel.clear()


if __name__ == "__main__":
    main()
