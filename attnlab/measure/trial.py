"""A tiny real launch decides whether a path can run a kind of problem; a version number or a clean import does not.

A kind is what kernels are chosen by: path, dtype, head dim, mask, padding, direction, head grouping. Each is tried once, on
128 tokens; the trial also compiles what is compiled just in time and reads the kernel's name from the profiler.

Where libraries are known to answer wrongly without a word, the trial looks at the answer: in query rows that see no key, in a
padded batch, and in a window over fewer keys than queries. Elsewhere a wrong answer is found at each point, which it makes
suspect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from attnlab.device import PathStatus
from attnlab.measure.accuracy import judge, truth
from attnlab.measure.inputs import Outputs, make_call, make_inputs
from attnlab.measure.kernels import main_kernel
from attnlab.paths import FLASH_CANDIDATES, PATHS, flash
from attnlab.paths.base import Path, first_line, load
from attnlab.problem import AttentionProblem

TINY_SEQ = 128
TINY_ODD = 77  # a length that fills no tile

Say = Callable[..., None]  # say(event, **fields): a message of attnlab.protocol, without its id


def silent(event: str, **fields: object) -> None:
    """For callers to whom nothing need be said."""


class DeviceLost(RuntimeError):
    """The device's context is unusable; only a new process can go on. The message is the first line of the cause."""


@dataclass(frozen=True)
class Verdict:
    """`reason` is empty when the path runs this kind of problem."""

    path: Path
    provider: str
    reason: str = ""
    seconds: float = 0.0  # what the trial took, compilation included
    wrong: bool = False  # it runs, and answers wrongly: `reason` says how


class Trials:
    """Remembers the verdict on each kind of problem."""

    def __init__(self, device: torch.device):
        self.device = device
        self.paths = {name: load(name, device) for name in PATHS}
        self._verdicts: dict[tuple[str, AttentionProblem], Verdict] = {}

    def verdict(self, name: str, problem: AttentionProblem, say: Say) -> Verdict:
        """The verdict on path `name`; for `flash` the first candidate that runs the problem. Raises DeviceLost.

        Says `compiling` before a first launch."""
        if name != "flash":
            return self._one(self.paths[name], problem, say, name)
        refusals = []
        for candidate in self._candidates(problem):
            verdict = self._one(self.paths[candidate], problem, say, name)
            if not verdict.reason:
                return verdict
            if self.paths[candidate].status().usable:
                refusals.append(f"{candidate}: {verdict.reason}")
        reason = "no installed FlashAttention runs this; " + ("; ".join(refusals) or "none is installed")
        return Verdict(self.paths["flash"], "", reason)

    def _candidates(self, problem: AttentionProblem) -> tuple[str, ...]:
        if self.device.type != "cuda":
            return FLASH_CANDIDATES
        card = torch.cuda.get_device_properties(self.device)
        return flash.candidates(problem, card.multi_processor_count, (card.major, card.minor))

    def _one(self, path: Path, problem: AttentionProblem, say: Say, asked: str) -> Verdict:
        if not (status := path.status()).usable:
            return Verdict(path, "", status.reason)
        if reason := path.unsupported(problem):
            return Verdict(path, path.provider, reason)
        tiny = tiny_problem(problem)
        key = (path.name, tiny)
        if key not in self._verdicts:
            say(
                "compiling",
                path=asked,
                text=f"preparing {path.provider} for head_dim {problem.head_dim} {problem.dtype}",
            )
            self._verdicts[key] = self._launch(path, tiny)
        return self._verdicts[key]

    def _launch(self, path: Path, tiny: AttentionProblem) -> Verdict:
        started = time.perf_counter()
        try:
            inputs = make_inputs(tiny, self.device)
            call = make_call(path.build(tiny), tiny, *inputs)
            reason = wrong_in_edges(tiny, inputs, call())
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except Exception as error:  # whatever a library raises for a problem it does not take is its answer
            if fault := device_fault(self.device):
                raise DeviceLost(f"{path.name}: {fault}") from None
            return Verdict(path, path.provider, first_line(error), time.perf_counter() - started)
        seconds = time.perf_counter() - started
        if reason:
            return Verdict(path, path.provider, reason, seconds, wrong=True)
        kernel = main_kernel(call.launch, self.device)
        return Verdict(path, f"{path.provider} · {kernel}" if kernel else path.provider, seconds=seconds)

    def status(self, name: str, problem: AttentionProblem) -> PathStatus:
        """The path's status after a try with `problem`. Raises DeviceLost."""
        status = self.paths[name].status()
        if not status.usable:
            return status
        verdict = self.verdict(name, problem, silent)
        state = "broken" if verdict.reason else "ready"
        return replace(status, state=state, provider=verdict.provider, reason=verdict.reason)


def tiny_problem(problem: AttentionProblem) -> AttentionProblem:
    """The smallest problem of the same kind: same dtype, head dim, mask, padding, direction, grouping and order of lengths,
    with rows that see no key exactly where the problem has some, a window beyond all keys where it has one, and an empty
    sequence where it has one."""
    q = TINY_SEQ * (2 if problem.seq_q > problem.seq_kv else 1)
    kv = TINY_SEQ * (2 if problem.seq_q < problem.seq_kv else 1)
    group, window, lengths = problem.heads // problem.kv_heads, problem.window, None
    if window is not None and q > kv and not problem.causal:
        q, kv, window = _tiny_window(problem)
    if problem.lengths is not None:
        lengths = (TINY_SEQ, TINY_ODD, *([0] if 0 in problem.lengths else []))
    batch = 1 if lengths is None else len(lengths)
    return replace(problem, batch=batch, seq_q=q, seq_kv=kv, heads=group, kv_heads=1, window=window, lengths=lengths)


def _tiny_window(problem: AttentionProblem) -> tuple[int, int, int]:
    """(queries, keys, window) for a window on both sides of fewer keys than queries, each of the ways it can lie.

    From seq_q - seq_kv + 1 on it reaches every row; beyond seq_kv flash-attn 2.8.3 takes it for no window at all, which is
    right only from seq_q on.
    """
    tile, window = TINY_SEQ, problem.window
    if window >= problem.seq_q:
        return 2 * tile, tile, max(window, 2 * tile)
    if problem.blind_rows:
        return (3 * tile, tile, tile + 1) if window > problem.seq_kv else (2 * tile, tile, min(window, tile // 2))
    return (3 * tile, tile, 2 * tile + 1) if window > problem.seq_kv else (3 * tile, 2 * tile, tile + 1)


def wrong_in_edges(problem: AttentionProblem, inputs: tuple[torch.Tensor | None, ...], outputs: Outputs) -> str:
    """Why an answer to a problem with blind rows, padding, or a window over fewer keys than queries is wrong, in one line; ""
    when it is right or has none of these."""
    by_name = dict(zip(problem.outputs, outputs, strict=True))
    for name in ("O", "dQ"):
        rows = by_name[name][:, : problem.blind_rows] if name in by_name else None
        if rows is not None and (rows != 0).any():  # NaN is not 0 either
            worst = rows[rows != 0][0].item()
            answered = "answers" if name == "O" else f"answers {name} ="
            return f"{answered} {worst:.3g} in rows that see no key, where 0 is right"
    windowed = problem.window is not None and problem.seq_q > problem.seq_kv
    if problem.lengths is None and not problem.blind_rows and not windowed:
        return ""
    exact = truth(problem, *inputs)
    return judge(exact.errors(outputs), exact.standard, problem.dtype)


def device_fault(device: torch.device) -> str:
    """What the device's context answers once all that was queued has ended: "" while it is sound, else the first line of the
    fault that it never heals of, a device-side assert or an illegal access. Whatever is called next gets an error too, but in
    the words of its own library ("CUBLAS_STATUS_EXECUTION_FAILED")."""
    if device.type != "cuda":
        return ""
    try:
        torch.cuda.synchronize(device)
        torch.zeros(1, device=device).item()
    except torch.OutOfMemoryError:
        return ""
    except RuntimeError as error:
        return first_line(error)
    return ""
