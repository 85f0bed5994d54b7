"""A sweep as the line that measures it again: what the page offers for copying, and what `cli` reads."""

from __future__ import annotations

from attnlab.sweep import DEFAULT_BUDGET_S, DEFAULT_PATHS, DEFAULT_PRECISION, L2_MODES, Sweep

PROGRAM = "python -m attnlab"


def command_line(sweep: Sweep) -> str:
    """The line that measures the same again, on any device; its words need no quoting."""
    problem = sweep.problem
    words = [PROGRAM, "sweep", "--batch", problem.batch, "--heads", problem.heads, "--dim", problem.head_dim]
    words += ["--seqs", ",".join(map(str, sweep.seqs)), "--dtype", problem.dtype]
    if problem.kv_heads != problem.heads:
        words += ["--kv-heads", problem.kv_heads]
    options = {"--window": problem.window, "--seq-q": sweep.seq_q}
    options["--precision"] = sweep.precision if sweep.precision != DEFAULT_PRECISION else None
    options["--l2"] = sweep.l2 if sweep.l2 != L2_MODES[0] else None
    words += [word for name, value in options.items() if value is not None for word in (name, value)]
    if sweep.paths != DEFAULT_PATHS:
        words += ["--paths", ",".join(sweep.paths)]
    if sweep.budget_s != DEFAULT_BUDGET_S:
        words += ["--budget", int(sweep.budget_s) if sweep.budget_s == int(sweep.budget_s) else sweep.budget_s]
    flags = {"--causal": problem.causal, "--backward": problem.backward}
    flags |= {"--try-oom": sweep.try_oom, "--no-refine": not sweep.refine}
    return " ".join(map(str, [*words, *(flag for flag, given in flags.items() if given)]))
