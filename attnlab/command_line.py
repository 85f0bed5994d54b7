"""A sweep as the line that measures it again: what the page offers for copying, and what `arguments` reads."""

from __future__ import annotations

from attnlab.problem import FORWARD
from attnlab.sweep import DEFAULT_BUDGET_S, DEFAULT_PATHS, DEFAULT_PRECISION, L2_MODES, TIME, Sweep

PROGRAM = "python -m attnlab"


def command_line(sweep: Sweep) -> str:
    """The line that measures the same again, on any device; its words need no quoting."""
    problem = sweep.problem
    timed = sweep.task == TIME
    command = ["sweep"] if timed else ["check", "--task", sweep.task]
    words = [PROGRAM, *command, "--batch", problem.batch, "--heads", problem.heads, "--dim", problem.head_dim]
    words += ["--seqs", ",".join(map(str, sweep.seqs)), "--dtype", problem.dtype]
    if problem.kv_heads != problem.heads:
        words += ["--kv-heads", problem.kv_heads]
    options = {"--window": problem.window, "--seq-q": sweep.seq_q}
    options["--lengths"] = None if problem.lengths is None else ",".join(map(str, problem.lengths_at(sweep.seqs[-1])))
    usual = problem.direction == FORWARD and sweep.task != "determinism"  # which looks at gradients by itself
    options["--direction"] = None if usual else problem.direction
    options["--precision"] = sweep.precision if timed and sweep.precision != DEFAULT_PRECISION else None
    options["--l2"] = sweep.l2 if timed and sweep.l2 != L2_MODES[0] else None
    words += [word for name, value in options.items() if value is not None for word in (name, value)]
    if sweep.paths != DEFAULT_PATHS:
        words += ["--paths", ",".join(sweep.paths)]
    if timed and sweep.budget_s != DEFAULT_BUDGET_S:
        words += ["--budget", int(sweep.budget_s) if sweep.budget_s == int(sweep.budget_s) else sweep.budget_s]
    flags = {"--causal": problem.causal}
    flags |= {"--try-oom": timed and sweep.try_oom, "--no-refine": timed and not sweep.refine}
    return " ".join(map(str, [*words, *(flag for flag, given in flags.items() if given)]))
