"""The lab owns the worker process: queue, cancel, time limits, restarts, snapshots.

    lab = Lab(Store())
    run_id = lab.submit(sweep)      at once; a run that was measured before is the answer, without measuring
    lab.snapshot(run_id).run        at once, four times a second if need be
    lab.cancel(run_id)

Two rooms make it up: the board (board.py) is what callers see, the supervisor (supervisor.py) the thread that talks to the
worker. The web process itself never imports torch.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sys
from collections import deque
from collections.abc import Sequence

from attnlab.board import Board
from attnlab.run import Run, Snapshot, WorkerState
from attnlab.store import Store
from attnlab.supervisor import Supervisor
from attnlab.sweep import Sweep


def default_worker_command() -> list[str]:
    """ATTNLAB_WORKER is put in front: what starts the worker another way or elsewhere, such as "srun --gres=gpu:1" or
    "ssh gpu-box cd AttnLab '&&'". ATTNLAB_WORKER_PYTHON is the interpreter there, where that is another one."""
    prefix = os.environ.get("ATTNLAB_WORKER", "")
    try:
        words = shlex.split(prefix)
    except ValueError:  # a quote that is not closed; the words as they are name no program, and the page will say so
        words = prefix.split()
    return [*words, os.environ.get("ATTNLAB_WORKER_PYTHON") or sys.executable, "-u", "-m", "attnlab.worker"]


class Lab:
    """See the module's opening. All methods may be called from any thread.

    worker_command  argv of the worker; default_worker_command() when None
    limits          how long is waited for what, as the Supervisor has them
    """

    def __init__(self, store: Store, *, worker_command: Sequence[str] | None = None, **limits: float):
        command = default_worker_command() if worker_command is None else worker_command
        device, paths = store.last_device(command) or (None, ())
        self.store = store
        self._board = Board(store, WorkerState(state="starting", device=device, paths=paths))
        self._supervisor = Supervisor(self._board, command, **limits)
        atexit.register(self.close)

    @property
    def notes(self) -> deque[str]:
        """What the worker said that nobody asked for, the last hundred."""
        return self._supervisor.notes

    def submit(self, sweep: Sweep, *, fresh: bool = False, room: int | None = None) -> str:
        """Queues the sweep and returns its run id. Unless `fresh`, an equal run that is queued or running is joined,
        or else one that was measured on this device before is the answer. Raises QueueFull where it would be one more behind
        `room` waiting runs, RuntimeError after close()."""
        run_id, new = self._board.submit(sweep, fresh=fresh, room=room)
        if new:
            self._supervisor.wake()
        return run_id

    def cancel(self, run_id: str) -> None:
        """Ends a queued or running run; what it measured stays. Nothing happens to a run that has ended."""
        self._board.finish(run_id, "cancelled", "stopped")
        self._supervisor.cancelled()

    def snapshot(self, run_id: str | None = None) -> Snapshot:
        """The worker, the queue and one run: the active one, or else the newest submitted here, when run_id is None."""
        return self._board.snapshot(run_id)

    def changed(self, version: int, timeout: float | None = None) -> int:
        """Blocks until the lab's version is another one, or `timeout` seconds; returns the version then."""
        return self._board.changed(version, timeout)

    def wait_for_point(self, known: Run, timeout: float | None = None) -> bool:
        """Blocks until the run has a measurement more than `known`, or has ended, or `timeout` seconds; False for the last."""
        return self._board.wait_for_point(known, timeout)

    def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """Blocks until the run has ended, or `timeout` seconds; the run as it is then, None when there is none."""
        return self._board.wait(run_id, timeout)

    def close(self) -> None:
        """Ends the worker and the threads; active and queued runs become `cancelled`. May be called twice."""
        if self._board.close():
            atexit.unregister(self.close)
            self._supervisor.close()
        self._supervisor.join(10)
