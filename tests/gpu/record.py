"""Records the runs that ship with AttnLab, on this machine: `python tests/gpu/record.py attnlab/data [NAME …]`.

Each run goes into a file of its own, <device>-<name>.json, which the pages replay: the default sweep and the length beyond
it (the file is called after the device alone), the default sweep with all paths, one ladder for each preset, what claims
still ask for, and the looks at the answers. One worker measures them all, so that what is compiled is compiled once. Names
choose some of them; `--list` says which there are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attnlab.claims import CLAIMS
from attnlab.device import Device
from attnlab.export import write_run
from attnlab.lab import Lab
from attnlab.paths import PATHS
from attnlab.presets import PRESETS
from attnlab.problem import FORWARD_BACKWARD, AttentionProblem
from attnlab.store import Store
from attnlab.sweep import DEFAULT_PATHS, TIME, Sweep, default_sweep, powers_of_two

BUDGET_S = 600.0  # compiling counts
IDLE_S = 2.5  # between two runs: the worker gives back the memory that it keeps in store, and graphs find room
COMPILED = ("compiled", "flex")  # for seconds a shape
SAME = ("flash-attn-4", "sdpa-math")  # what `flash` is there, and what takes all day
DTYPES = ("bfloat16", "float16", "float32")


def sweeps(kind: str, installed: tuple[str, ...]) -> Iterator[tuple[str, Sweep]]:
    """(name, what to run) on a device of that kind; `installed` are the paths that can run there."""
    every = tuple(name for name in PATHS if name in installed)
    prompt = tuple(name for name in every if name not in COMPILED)
    default = replace(default_sweep(kind), budget_s=BUDGET_S)
    beyond = replace(default, seqs=(*default.seqs, 2 * default.seqs[-1]), try_oom=True)  # to where memory runs out
    yield "", replace(beyond, paths=tuple(name for name in prompt if name not in SAME))
    yield "all-paths", replace(default, paths=prompt)
    for preset in PRESETS.values():
        sweep = preset.sweep(every)
        yield preset.name, replace(sweep, seqs=sweep.seqs[-1:], budget_s=BUDGET_S)
    answers = AttentionProblem(batch=2, seq_q=128, heads=16, head_dim=128, direction=FORWARD_BACKWARD)
    for dtype in DTYPES:
        problem = replace(answers, dtype=dtype)
        long = powers_of_two(8_192 if kind == "cuda" else 512)
        yield f"exactness-{dtype}", Sweep(problem=problem, seqs=long, paths=prompt, task="exactness", budget_s=BUDGET_S)
        small = replace(problem, head_dim=64)
        yield f"edges-{dtype}", Sweep(problem=small, seqs=(128,), paths=prompt, task="edges", budget_s=BUDGET_S)
    shape = default_sweep(kind).problem
    yield "anatomy", Sweep(problem=shape, seqs=(8_192,), paths=prompt[:2], task="counters", budget_s=BUDGET_S)
    repeated = replace(answers, batch=1, causal=True, seq_q=4_096, seq_kv=4_096)
    yield "determinism", Sweep(problem=repeated, seqs=(4_096,), paths=prompt, task="determinism", budget_s=BUDGET_S)
    for claim in CLAIMS:  # the others are answered by the runs above
        more = claim.task == TIME and claim.paths != DEFAULT_PATHS
        if more and set(claim.paths) <= set(installed):
            yield f"claim-{claim.name}", claim.sweep(kind)
    yield "support", Sweep(problem=answers, seqs=(128,), paths=every, task="support", budget_s=BUDGET_S)


def file_name(device: Device, name: str) -> str:
    """h200.json, h200-support.json."""
    short = device.name.removeprefix("NVIDIA ").lower().replace(" ", "-")
    return f"{short}-{name}.json" if name else f"{short}.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="all when left out; 'default' is the default sweep")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    lab = Lab(Store())
    try:
        while (worker := lab.snapshot().worker).state != "ready":
            assert worker.state != "failed", worker.text
            lab.changed(lab.snapshot().version, 1.0)
        installed = tuple(path.name for path in worker.paths if path.usable)
        for name, sweep in sweeps(worker.device.kind, installed):
            wanted = not arguments.names or (name or "default") in arguments.names
            if arguments.list:
                print(name or "default")
            elif wanted:
                time.sleep(IDLE_S)
                run = lab.wait(lab.submit(sweep, fresh=True))
                path = arguments.folder / file_name(run.device, name)
                write_run(run, path)
                statuses = [m.status for m in run.measurements]
                said = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
                print(f"{path}: {run.state} in {run.seconds:.1f} s, {said} {run.reason}", flush=True)
    finally:
        lab.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
