"""Runs that looked at answers, on paper."""

from samples import CPU

from attnlab import verdicts
from attnlab.finding import Finding
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run

ERRORS = {"standard": 5.7e-3, "flash": 2.2e-3}
CONTROL = Finding(what="control: scale × 1.1", verdict="pass", values={"relative": 0.15})


def answer(relative, verdict="pass", standard=5.7e-3, what="O", **more):
    """One output's finding; `relative` None for one that is not finite."""
    values = {
        "max_abs": relative and 3 * relative, "relative": relative, "nonfinite": 0 if relative is not None else 7,
        "standard_max_abs": 3 * standard, "standard_relative": standard, "bound_max_abs": 6 * standard + 1e-5,
        "bound_relative": 2 * standard + 1e-5, "compared": 4096, "of": 8192,
    }  # fmt: skip
    return Finding(what=what, verdict=verdict, values=values, **more)


def point(path, seq, *findings, status=None, dtype="bfloat16", **more):
    failed = any(found.failed for found in findings)
    problem = AttentionProblem(batch=1, seq_q=seq, heads=4, head_dim=64, dtype=dtype)
    status = status or ("suspect" if failed else "ok")
    return Measurement.of(problem, path, status, findings=tuple(findings), **more)


def look(
    *points, task="exactness", seqs=(512, 1024), paths=("standard", "flash"), state="done", dtype="bfloat16", **more
):
    problem = AttentionProblem(batch=1, seq_q=seqs[-1], heads=4, head_dim=64, dtype=dtype)
    sweep = verdicts.look(problem, seqs, paths, task=task)
    more = {"device": CPU, "created": "2026-11-30T10:00:00+00:00", "id": f"{task}-{dtype}"} | more
    return Run(sweep=sweep, state=state, measurements=points, **more)


def exactness(errors=None, dtype="bfloat16", **more):
    """Every path passes at both lengths, as far from the truth as `errors` say."""
    errors = errors or ERRORS
    points = [
        point(path, seq, answer(error, standard=errors["standard"]), CONTROL, dtype=dtype)
        for path, error in errors.items() for seq in (512, 1024)
    ]  # fmt: skip
    return look(*points, dtype=dtype, paths=tuple(errors), **more)
