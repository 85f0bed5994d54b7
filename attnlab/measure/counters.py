"""The bytes that really went through device memory, from the hardware counters, beside those that are counted.

NVIDIA Nsight Compute (ncu) reads them, one kernel at a time, of the call that attnlab.measure.counted makes in a process of
its own: what is taken apart and timed is what attnlab.measure.anatomy does; this adds to each of its findings

    dram_read_bytes, dram_write_bytes    of all kernels of the operation, each begun with an empty L2

What a kernel has written and the L2 still holds when it ends, at most the size of the L2, has not reached the memory yet and
is not in them. The clocks are left as they are. Where ncu is missing, or may not read the counters, one more finding says so.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from attnlab.finding import Finding
from attnlab.measure import memory
from attnlab.measure.anatomy import Anatomy
from attnlab.measure.trial import Verdict

ROOT = Path(__file__).resolve().parents[2]  # where `python -m attnlab…` finds the package
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
DIVIDER = "spin_kernel"  # the kernel that stands between two operations (attnlab.measure.counted)
TOOLKIT = "/usr/local/cuda/bin"  # where the CUDA toolkit puts it
LIMIT_S = 300.0  # of one path; it may compile
POLL_S = 0.1
IDLE_WORDS = ("==PROF==", "==WARNING==", '"', "{")  # how lines begin that explain nothing
NOT_ALLOWED = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM); an administrator allows it with the NVIDIA "
    "kernel module's option NVreg_RestrictProfilingToAdminUsers=0"
)


def find_ncu() -> str | None:
    """The program, on PATH or where the CUDA toolkit puts it."""
    return shutil.which("ncu") or shutil.which("ncu", path=TOOLKIT)


class Counters:
    """An anatomy with the counters added."""

    def __init__(self, anatomy: Anatomy, program: str | None):
        self.anatomy, self.program = anatomy, program

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        """The findings of the anatomy, with the bytes where they could be read, and why where they could not."""
        findings = list(self.anatomy.look(name, verdict))
        counted, why = self._counted(verdict.path.name)
        for finding in findings:
            yield replace(finding, values={**finding.values, **counted.get(finding.what, {})})
        if why:
            yield Finding(what="counters", verdict="unsupported", text=why)

    def _counted(self, path: str) -> tuple[dict[str, dict[str, int]], str]:
        """(bytes by operation, "") or (nothing, why)."""
        device = self.anatomy.device
        if device.type != "cuda":
            return {}, "the counters of device memory are those of an NVIDIA GPU"
        if self.program is None:
            return {}, "NVIDIA Nsight Compute (ncu), which reads the counters, is not on the PATH"
        memory.release(device)  # the other process needs it
        asked = {"problem": self.anatomy.problem.to_json(), "path": path, "device": str(device)}
        with tempfile.TemporaryFile("w+") as said:
            code = self._run(json.dumps(asked), said)
            said.seek(0)
            return read(said.read(), code)

    def _run(self, asked: str, said: io.TextIOBase) -> int:
        """ncu's exit code. Raises what `check` raises, with nothing left running."""
        command = [self.program, "--csv", "--clock-control", "none", "--metrics", f"{READ},{WRITE}"]
        command += ["--profile-from-start", "off", sys.executable, "-m", "attnlab.measure.counted", asked]
        search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": search},
        )
        try:
            until = time.monotonic() + LIMIT_S
            while child.poll() is None and time.monotonic() < until:
                self.anatomy.check()
                time.sleep(POLL_S)
            return child.poll() if child.poll() is not None else -signal.SIGALRM
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and all that it started
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def read(said: str, code: int) -> tuple[dict[str, dict[str, int]], str]:
    """What ncu and the process said → (bytes by operation, "") or (nothing, why not).

    The process says {"operations": [names]} on a line; ncu gives a CSV table of two lines a kernel, in order.
    """
    if "ERR_NVGPUCTRPERM" in said:
        return {}, NOT_ALLOWED
    lines = said.splitlines()
    names = next((json.loads(line)["operations"] for line in lines if line.startswith('{"operations"')), None)
    table = list(csv.DictReader(line for line in lines if line.startswith('"')))
    if code == -signal.SIGALRM:
        return {}, f"ncu was not done after {LIMIT_S:.0f} s"
    if names is None or not table or code:
        words = [line.strip() for line in lines if line.strip() and not line.startswith(IDLE_WORDS)]
        return {}, f"ncu read nothing: {words[-1][:200] if words else f'exit code {code}'}"
    found, operation = [], {"dram_read_bytes": 0, "dram_write_bytes": 0}
    for row in table:
        if DIVIDER in row["Kernel Name"]:
            if row["Metric Name"] == READ:
                found.append(operation)
                operation = dict.fromkeys(operation, 0)
        else:
            key = {READ: "dram_read_bytes", WRITE: "dram_write_bytes"}[row["Metric Name"]]
            operation[key] += int(float(row["Metric Value"].replace(",", "")))
    if len(found) != len(names):
        return {}, f"ncu saw {len(found)} operations, and there are {len(names)}"
    return dict(zip(names, found, strict=True)), ""
