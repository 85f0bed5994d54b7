"""The machine's own browser, which makes a picture of a chart: how it is found, and run without a window.

It runs in a folder of its own, as a child in a session of its own: past its time limit it is ended with all it started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--disable-component-update", "--no-first-run")  # fmt: skip
# Chromium makes a socket in a folder of $TMPDIR and aborts where its path is too long: 107 bytes, by unix(7).
TEMPORARY_MAX = 107 - len("/org.chromium.Chromium.XXXXXX/SingletonSocket")
PNG = b"\x89PNG\r\n"  # what a picture of this kind begins with


@dataclass(frozen=True)
class Ended:
    """How a browser ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def last_words(self) -> str:
        return next((line for line in reversed(self.err.splitlines()) if line.strip()), "no word")


def find() -> str | None:
    """The path of the first of NAMES that is on the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def run(program: str, arguments: Sequence[str], folder: Path, limit_s: float) -> Ended:
    """Runs it to its end; its profile is in `folder`. Raises subprocess.TimeoutExpired after `limit_s`, and OSError."""
    command = [program, *arguments, *ARGUMENTS, f"--user-data-dir={folder}/profile"]
    environment = os.environ | {"HOME": str(folder)}
    if len(environment.get("TMPDIR", "")) > TEMPORARY_MAX:
        environment["TMPDIR"] = "/tmp"
    out, err = folder / "out", folder / "err"  # files, not pipes: its children could hold a pipe open
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file, env=environment,
            start_new_session=True,
        )  # fmt: skip
    try:
        code = process.wait(limit_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
        process.wait()
        raise
    return Ended(code, *(file.read_text(encoding="utf-8", errors="replace") for file in (out, err)))
