"""The command line: the page's engine without a page.

    python -m attnlab compare                      two paths back to back, five rounds, wall clock
    python -m attnlab sweep --seqs 128,256,512     a sweep as a live table, then what the page says of it
    python -m attnlab check --task exactness       a look at the answers instead: how far from the truth, and whether too far
    python -m attnlab record --out FILE            a sweep or, with --task, a look, written as the file that a page replays
    python -m attnlab roofline --gpu H200          time on paper; --textbook: as the textbook has it, and wrong
    python -m attnlab plan --gpu H200 --seq 32768  what each path needs of its memory, and the longest sequence that fits
    python -m attnlab claims                       what people say of FlashAttention, tested here
    python -m attnlab export RUN --csv FILE        a run of the store as files; RUN: last, a run's id or its beginning, h200
    python -m attnlab import FILE_OR_FOLDER        runs from other machines into the store
    python -m attnlab doctor                       what is installed, whether it works, and what to do about the rest

Exit codes: 0 when it ran (a point out of memory is a result, and so is an answer that fails), 1 when it could not, 2 for
bad arguments with one line that names the legal values, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from attnlab import (
    calculate,
    claims,
    comparison,
    devices,
    exchange,
    hardware,
    html_page,
    nvml,
    picture,
    protocol,
    table,
    tabular,
    textbook,
    verdicts,
)
from attnlab.checked import shown
from attnlab.command_line import PROGRAM
from attnlab.device import Device
from attnlab.doctor import report
from attnlab.doctor.examination import Examination
from attnlab.export import recorded_runs, write_run
from attnlab.lab import Lab, default_worker_command
from attnlab.paths import PATHS
from attnlab.presets import PRESETS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, FORWARD, FORWARD_BACKWARD, LIMITS, AttentionProblem, ProblemError
from attnlab.process import WorkerProcess
from attnlab.run import Run
from attnlab.store import Store
from attnlab.sweep import (
    BUDGET_LEGAL,
    BUDGET_MAX_S,
    DEFAULT_BUDGET_S,
    DEFAULT_PATHS,
    DEFAULT_PRECISION,
    L2_MODES,
    PRECISION_LEGAL,
    PRECISIONS,
    TASKS,
    TIME,
    Sweep,
    default_sweep,
)

MAX_STEPS = 100_000
EVERY_S = 0.2  # between two looks at several runs
COMMANDS = ("compare", "sweep", "check", "record", "roofline", "plan", "claims", "export", "import", "doctor")
FORMATS = ("json", "csv", "parquet", "md", "html")  # of an export, an option and a file each
NAMED = 5  # runs that an error names


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code. Bad arguments leave by SystemExit(2), as argparse does."""
    if sys.stdout is None:  # closed by the caller: what is printed goes nowhere
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout.reconfigure(errors="replace")  # a terminal without "×" shows "?" rather than a traceback
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    try:
        return arguments.run(arguments)
    except ProblemError as error:
        arguments.parser.error(str(error))
    except KeyboardInterrupt:
        print(f"{arguments.parser.prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read this has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a worker command that does not exist, a disk that is full
        print(f"{arguments.parser.prog}: {error}", file=sys.stderr)
        return 1


# Arguments


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one line without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog=PROGRAM, description="Standard attention and FlashAttention, measured.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar=f"{{{','.join(COMMANDS)}}}")
    for name, run, add, text in (
        ("compare", _compare, _add_compare, "two paths back to back, round by round, wall clock"),
        ("sweep", _sweep, _add_sweep, "latency and memory against sequence length, as a live table"),
        ("check", _sweep, _add_check, "a look at the answers: exactness, determinism, edges, support"),
        ("record", _record, _add_record, "a sweep or a look, written as a file that the page replays"),
        ("roofline", _roofline, _add_roofline, "time on paper: FLOPs over peak and bytes over bandwidth"),
        ("plan", _plan, _add_plan, "what each path needs of a device's memory, and what fits"),
        ("claims", _claims, _add_claims, "what people say of FlashAttention, tested here"),
        ("export", _export, _add_export, "a run as files: JSON, CSV, Parquet, Markdown, HTML, PNG and SVG"),
        ("import", _import, _add_import, "runs from other machines into the store: JSON files, or folders of them"),
        ("doctor", _doctor, _add_doctor, "what is installed, whether it works, and what to do about the rest"),
    ):
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.set_defaults(run=run, parser=command)
        add(command)
    arguments, unknown = parser.parse_known_args(argv)
    if arguments.command is None:
        parser.error(f"no command given; legal: {', '.join(COMMANDS)}")
    if unknown:
        legal = [option for action in arguments.parser._actions for option in action.option_strings]
        arguments.parser.error(f"{unknown[0]} is not an option; legal: {', '.join(legal)}")
    return arguments


def _add_shape(parser: argparse.ArgumentParser, dtype_default: str) -> None:
    parser.add_argument("--batch", type=_whole_number(LIMITS["batch"]), metavar="N")
    parser.add_argument("--heads", type=_whole_number(LIMITS["heads"]), metavar="N")
    parser.add_argument("--dim", type=_whole_number(LIMITS["head_dim"]), metavar="N", help="head dimension")
    parser.add_argument("--dtype", type=_one_of(DTYPE_BYTES), metavar="DTYPE",
                        help=f"{', '.join(DTYPE_BYTES)}; default: {dtype_default}")  # fmt: skip


def _add_compare(parser: argparse.ArgumentParser) -> None:
    _add_shape(parser, "bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--seq", type=_whole_number(LIMITS["seq_q"]), metavar="N")
    parser.add_argument("--steps", type=_whole_number(MAX_STEPS, least=2), metavar="N",
                        help="rounds; the first is not printed")  # fmt: skip
    flash = [name for name in PATHS if name != "standard"]
    parser.add_argument("--flash", type=_one_of(flash), metavar="PATH", help=f"{', '.join(flash)}; default: flash")
    parser.set_defaults(batch=4, seq=512, heads=32, dim=128, steps=5, flash="flash")


def _add_problem(parser: argparse.ArgumentParser) -> None:
    _add_shape(parser, "what fits the device")
    parser.add_argument("--seqs", type=_whole_numbers(LIMITS["seq_q"]), metavar="N,N,…", help="sequence lengths")
    parser.add_argument("--paths", type=_names, metavar="PATH,…", default=DEFAULT_PATHS, help=", ".join(PATHS))
    parser.add_argument(
        "--kv-heads", type=_whole_number(LIMITS["heads"], least=0), metavar="N", help="must divide heads"
    )
    parser.add_argument("--causal", action=argparse.BooleanOptionalAction,
                        help="mask what lies ahead, aligned bottom-right")  # fmt: skip
    parser.add_argument("--window", type=_whole_number(LIMITS["seq_kv"]), metavar="N",
                        help="a sliding window: keys at a distance less than N are seen")  # fmt: skip
    parser.add_argument("--seq-q", type=_whole_number(LIMITS["seq_q"]), metavar="N",
                        help="queries of every point, 1 for decoding; default: as many as keys")  # fmt: skip
    parser.add_argument("--lengths", type=_whole_numbers(LIMITS["seq_kv"], least=0), metavar="N,N,…",
                        help="a padded batch: valid tokens of each sequence at the longest length, one for each of the batch;"
                        " default: no padding")  # fmt: skip
    parser.add_argument("--direction", type=_one_of(DIRECTIONS), metavar="DIRECTION",
                        help=f"{', '.join(DIRECTIONS)}; default: forward")  # fmt: skip
    parser.add_argument("--backward", action="store_const", dest="direction", const=FORWARD_BACKWARD,
                        help="short for --direction forward+backward")  # fmt: skip
    parser.add_argument("--json", type=_writable, metavar="FILE", help="write the run there")


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    _add_timed(parser)
    parser.add_argument("--devices", metavar="DEVICE,…",
                        help="several at once: all, cpu, numbers or UUIDs; --json writes a file for each")  # fmt: skip


def _add_timed(parser: argparse.ArgumentParser) -> None:
    _add_problem(parser)
    parser.set_defaults(task=TIME)
    parser.add_argument("--preset", type=_one_of(PRESETS), metavar="NAME",
                        help=f"what a model runs, where the other options leave it: {', '.join(PRESETS)}")  # fmt: skip
    parser.add_argument("--budget", type=_seconds, metavar="SECONDS", default=DEFAULT_BUDGET_S,
                        help=f"what the run may take; default: {DEFAULT_BUDGET_S:g}")  # fmt: skip
    parser.add_argument("--precision", type=_precision, metavar="P", default=DEFAULT_PRECISION,
                        help=f"when a point is sharp enough: {PRECISION_LEGAL}; default: {DEFAULT_PRECISION:g}")  # fmt: skip
    parser.add_argument("--l2", type=_one_of(L2_MODES), metavar="MODE", default=L2_MODES[0],
                        help=f"a GPU's L2 cache before a sample, {' or '.join(L2_MODES)}; default: {L2_MODES[0]}")  # fmt: skip
    parser.add_argument("--try-oom", action="store_true", help="try what is predicted to run out of device memory")
    parser.add_argument("--no-refine", action="store_true", help="the quick pass only")


def _add_check(parser: argparse.ArgumentParser) -> None:
    _add_problem(parser)
    parser.set_defaults(preset=None, devices=None)
    looks = [task for task in TASKS if task != TIME]
    parser.add_argument("--task", type=_one_of(looks), metavar="TASK", default=looks[0],
                        help=f"{', '.join(looks)}; default: {looks[0]}")  # fmt: skip


def _add_record(parser: argparse.ArgumentParser) -> None:
    _add_timed(parser)
    parser.add_argument("--task", type=_one_of(TASKS), metavar="TASK", default=TIME,
                        help=f"what is asked of each path: {', '.join(TASKS)}; default: {TIME}")  # fmt: skip
    parser.add_argument("--out", type=_writable, metavar="FILE", required=True, help="the file to write")


def _add_roofline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--textbook", action="store_true", help="as the textbook has it: one score matrix, four passes")
    _add_gpu(parser, "this device's")
    parser.add_argument("--dtype", type=_one_of(DTYPE_BYTES), metavar="DTYPE", default="bfloat16",
                        help=f"{', '.join(DTYPE_BYTES)}; default: bfloat16")  # fmt: skip
    parser.add_argument("--heads", type=_whole_number(LIMITS["heads"]), metavar="N", default=textbook.HEADS)
    parser.add_argument("--dim", type=_whole_number(LIMITS["head_dim"]), metavar="N", help="head dimension",
                        default=textbook.D_MODEL // textbook.HEADS)  # fmt: skip
    parser.add_argument("--batch", type=_whole_number(LIMITS["batch"]), metavar="N", default=1)
    parser.add_argument("--seqs", type=_whole_numbers(LIMITS["seq_q"]), metavar="N,N,…", default=textbook.SEQS,
                        help="sequence lengths")  # fmt: skip


def _add_claims(parser: argparse.ArgumentParser) -> None:
    every = [claim.name for claim in claims.CLAIMS]
    parser.add_argument("--only", type=_one_of(every), metavar="NAME", action="append",
                        help=f"test this one, may be given again: {', '.join(every)}; default: all")  # fmt: skip


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print strict JSON instead of a table")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "which", metavar="RUN", help="last, a run's id or the beginning of one, or a run that ships: h200"
    )
    for ending in FORMATS:
        parser.add_argument(f"--{ending}", type=_writable, metavar="FILE", help="write this format there")
    parser.add_argument("--pictures", type=_folder, metavar="FOLDER", help="write each chart there, as PNG and SVG")
    parser.add_argument("--dark", action="store_true", help="dark charts; default: light")


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="FILE_OR_FOLDER", help="a run as JSON, or a folder of them"
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    usual = default_sweep("cuda").problem
    _add_gpu(parser, "this device")
    _add_shape(parser, usual.dtype)
    parser.add_argument("--seq", type=_whole_number(LIMITS["seq_q"]), metavar="N", help="the sequence of the table")
    parser.add_argument(
        "--kv-heads", type=_whole_number(LIMITS["heads"], least=0), metavar="N", help="must divide heads"
    )
    parser.add_argument("--causal", action="store_true", help="mask what lies ahead")
    parser.add_argument("--backward", action="store_true", help="training: forward and backward; default: inference")
    parser.add_argument("--json", type=_writable, metavar="FILE", help="write the plan there")
    parser.set_defaults(batch=usual.batch, heads=usual.heads, dim=usual.head_dim, dtype=usual.dtype, seq=usual.seq_kv)


def _add_gpu(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--gpu", type=_gpu, metavar="NAME",
                        help=f"a card of the data sheets, such as A100-SXM4-80GB; default: {default}")  # fmt: skip


def _gpu(text: str) -> str:
    if hardware.lookup(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is in no data sheet here; legal: {', '.join(hardware.names())}")
    return text


def _whole_number(most: int, least: int = 1) -> Any:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}; legal: whole numbers from {least} to {most:,}")
        return value

    return read


def _whole_numbers(most: int, least: int = 1) -> Any:
    one = _whole_number(most, least)

    def read(text: str) -> tuple[int, ...]:
        try:
            return tuple(one(part) for part in text.split(","))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, with commas between them, such as 128,256,512") from None

    return read


def _one_of(legal: Any) -> Any:
    def read(text: str) -> str:
        if text not in legal:
            raise argparse.ArgumentTypeError(f"{text!r}; legal: {', '.join(legal)}")
        return text

    return read


def _names(text: str) -> tuple[str, ...]:
    return tuple(_one_of(PATHS)(part.strip()) for part in text.split(","))


def _number(legal: str, allowed: Callable[[float], bool]) -> Any:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not allowed(value):  # what is not a number is never within bounds
            raise argparse.ArgumentTypeError(f"{text!r}; legal: {legal}")
        return value

    return read


_seconds = _number(BUDGET_LEGAL, lambda value: 0 < value <= BUDGET_MAX_S)
_precision = _number(PRECISION_LEGAL, lambda value: PRECISIONS[0] <= value <= PRECISIONS[1])


def _writable(text: str) -> Path:
    """Refused before anything is measured, not after."""
    path = Path(text)
    try:
        path = path.expanduser()
        needed = [path.resolve().parent] if path.is_file() or not path.exists() else []  # a pipe is written as it is
        needed += [path] if path.exists() else []
        writable = not path.is_dir() and all(os.access(target, os.W_OK) for target in needed)
    except (OSError, RuntimeError, ValueError):  # a name that is too long, ~ of nobody, a zero byte
        writable = False
    if not writable:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; legal: a file in a folder that exists")
    return path


def _folder(text: str) -> Path:
    path = Path(text)
    if not (path.is_dir() and os.access(path, os.W_OK)):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written to; legal: a folder that exists")
    return path


def sweep_of(arguments: argparse.Namespace, device_kind: str) -> Sweep:
    """What the arguments ask for; what they leave open is what fits the device ("cuda", "cpu"). Raises ProblemError."""
    if arguments.preset:
        usual = PRESETS[arguments.preset].sweep()
    else:
        usual = default_sweep(device_kind) if arguments.task == TIME else verdicts.usual(device_kind, arguments.task)
    seqs = arguments.seqs or usual.seqs
    heads = arguments.heads or usual.problem.heads
    kv_heads = heads if arguments.heads else usual.problem.kv_heads
    seq_q = usual.seq_q if arguments.seq_q is None else arguments.seq_q
    problem = AttentionProblem(
        batch=arguments.batch or usual.problem.batch,
        seq_q=max(seqs),
        heads=heads,
        head_dim=arguments.dim or usual.problem.head_dim,
        kv_heads=kv_heads if arguments.kv_heads is None else arguments.kv_heads,
        dtype=arguments.dtype or usual.problem.dtype,
        causal=usual.problem.causal if arguments.causal is None else arguments.causal,
        window=usual.problem.window if arguments.window is None else arguments.window,
        lengths=arguments.lengths or usual.problem.lengths_at(max(seqs)),
        direction=arguments.direction or usual.problem.direction,
    )
    if arguments.task != TIME:
        return replace(verdicts.look(problem, seqs, arguments.paths, task=arguments.task), seq_q=seq_q)
    return Sweep(
        problem=problem,
        seqs=seqs,
        paths=arguments.paths,
        budget_s=arguments.budget,
        try_oom=arguments.try_oom,
        refine=not arguments.no_refine,
        seq_q=seq_q,
        precision=arguments.precision,
        l2=arguments.l2,
    )


# Commands


def _sweep(arguments: argparse.Namespace) -> int:
    if arguments.devices:
        return _sweep_on(arguments)
    run = _measure(arguments)
    if arguments.json:
        write_run(run, arguments.json)
        print(f"written: {arguments.json}")
    if run.state == "failed":
        print(f"{arguments.parser.prog}: {run.reason}", file=sys.stderr)
    return 0 if run.state == "done" else 1


def _record(arguments: argparse.Namespace) -> int:
    run = _measure(arguments)
    if run.state != "done":
        print(f"{arguments.parser.prog}: nothing is recorded: the run is {run.state} ({run.reason})", file=sys.stderr)
        return 1
    for path in filter(None, (arguments.out, arguments.json)):
        write_run(run, path)
        print(f"written: {path}")
    return 0


def _sweep_on(arguments: argparse.Namespace) -> int:
    """The same sweep on several devices at once, a worker and a table for each; then how they stand to one another."""
    try:
        choices = devices.chosen(arguments.devices, devices.here())
    except ValueError as error:
        raise ProblemError(str(error)) from None
    sweep_of(arguments, "cuda" if nvml.gpu_visible() else "cpu")
    usual, store = default_worker_command(), Store()
    labs = [Lab(store, worker_command=devices.worker_command(choice, usual)) for choice in choices]
    try:
        with _interrupts() as check:
            runs = [lab.submit(sweep_of(arguments, _device_kind(lab, check)), fresh=True) for lab in labs]
            shows = [table.Log(f"{choice.name}  ") for choice in choices]
            while True:
                done = [lab.snapshot(run_id).run for lab, run_id in zip(labs, runs, strict=True)]
                for show, run in zip(shows, done, strict=True):
                    show.update(run)
                if not any(run.active for run in done):
                    break
                check()
                time.sleep(EVERY_S)
    finally:
        for lab in labs:
            lab.close()
    for choice, run in zip(choices, done, strict=True):
        name = f"{choice.name}: " if run.device is None else ""
        print("\n".join([f"{name}{table.title(run)}", *table.rows(run), *table.footnotes(run), *table.said(run), ""]))
    if len(done) > 1:
        print(comparison.sentence(done))
    for place, run in enumerate(done):
        if arguments.json:
            path = Path(arguments.json)
            path = path.with_name(f"{path.stem}-{place}{path.suffix}")
            write_run(run, path)
            print(f"written: {path}")
    for run in done:
        if run.state == "failed":
            print(f"{arguments.parser.prog}: {run.reason}", file=sys.stderr)
    return 0 if all(run.state == "done" for run in done) else 1


def _measure(arguments: argparse.Namespace) -> Run:
    """Runs the sweep, showing it as it goes; returns it when it has ended. Raises ProblemError before it starts."""
    sweep_of(arguments, "cuda" if nvml.gpu_visible() else "cpu")
    store = Store()
    lab = Lab(store)
    try:
        with _interrupts() as check:
            sweep = sweep_of(arguments, _device_kind(lab, check))
            run = _follow(lab, lab.submit(sweep, fresh=True), check)
    finally:
        lab.close()
        if store.problem:
            print(f"{arguments.parser.prog}: {store.problem}", file=sys.stderr)
    if run.reached:
        print("\n".join(["", *table.rows(run), "", *table.footnotes(run), ""]))
    print("\n".join(table.said(run)))
    return run


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """What raises KeyboardInterrupt once Ctrl-C was pressed, to be called between two waits: an exception in the midst of
    one may leave the lab's lock taken, and then nobody ends the worker. The second Ctrl-C does not wait."""
    pressed = []

    def on_signal(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _device_kind(lab: Lab, check: Callable[[], None]) -> str:
    """Waits until the worker has said what it measures on; "cpu" when it cannot start, which the run will then say."""
    snapshot = lab.snapshot()
    while snapshot.worker.state in ("starting", "restarting"):
        check()
        lab.changed(snapshot.version, timeout=1.0)
        snapshot = lab.snapshot()
    device = snapshot.worker.device
    return device.kind if device is not None and snapshot.worker.state in ("ready", "busy") else "cpu"


def _follow(lab: Lab, run_id: str, check: Callable[[], None]) -> Run:
    """Shows the run until it has ended: a table that fills in place on a terminal, else a line for each point."""
    show = table.Screen() if sys.stdout.isatty() else table.Log()
    while True:
        snapshot = lab.snapshot(run_id)
        show.update(snapshot.run)
        if not snapshot.run.active:
            show.close(snapshot.run)
            return snapshot.run
        check()
        lab.changed(snapshot.version, timeout=1.0)


def _roofline(arguments: argparse.Namespace) -> int:
    if arguments.textbook:
        lines = calculate.textbook_table(arguments.seqs, arguments.heads * arguments.dim, arguments.gpu)
    else:
        problems = [
            AttentionProblem(batch=arguments.batch, heads=arguments.heads, head_dim=arguments.dim, seq_q=seq,
                             dtype=arguments.dtype) for seq in arguments.seqs
        ]  # fmt: skip
        roof = calculate.roof_of(arguments.gpu or _this_device(arguments.dtype), arguments.dtype)
        lines = calculate.floor_table(problems, roof)
    print("\n".join(lines))
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    wanted = [claim for claim in claims.CLAIMS if not arguments.only or claim.name in arguments.only]
    lab, done = Lab(Store()), []
    try:
        with _interrupts() as check:
            kind = _device_kind(lab, check)
            device = lab.snapshot().worker.device
            for claim in wanted:
                if device is None or claim.untestable(device) or claims.newest(claim, done):
                    continue
                run = _follow(lab, lab.submit(claim.sweep(kind)), check)
                if run.state == "failed":
                    raise OSError(run.reason)
                done.append(run)
    finally:
        lab.close()
    judged = [claims.verdict(claim, claims.newest(claim, done), device) for claim in wanted]
    cells = [["claim", "verdict", "measured", "said of"]]
    cells += [[c.text, j.verdict, j.measured or "–", c.setting] for c, j in zip(wanted, judged, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print()
    for line in cells:
        print("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(f"\n{claims.sentence(judged)}")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    """0 when the lab can measure something here, 1 when PyTorch itself is unusable."""
    examination = Examination()
    if sys.stderr.isatty():
        print("checking, which takes some seconds …", file=sys.stderr)
    try:
        with _interrupts() as check:
            examination.start()
            while (look := examination.wait(timeout=0.2)).running:
                check()
    finally:
        examination.close()
    if arguments.json:
        print(json.dumps(report.as_json(look), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(report.table(look, shutil.get_terminal_size().columns)))
    return 0 if look.usable else 1


def _export(arguments: argparse.Namespace) -> int:
    """1 when a picture cannot be made; what else is asked for is written all the same."""
    asked = {ending: path for ending in FORMATS if (path := getattr(arguments, ending)) is not None}
    if not asked and arguments.pictures is None:
        arguments.parser.error(f"nothing to write; legal: {', '.join(f'--{name}' for name in (*FORMATS, 'pictures'))}")
    run, theme = _stored(arguments), "dark" if arguments.dark else "light"
    make: dict[str, Callable[[], str | bytes]] = {
        "csv": lambda: tabular.to_csv(run),
        "parquet": lambda: tabular.to_parquet(run),
        "md": lambda: tabular.to_markdown(run),
        "html": lambda: html_page.page_of(run, theme=theme),
    }
    for ending, path in asked.items():
        if ending == "json":
            write_run(run, path)
        else:
            content = make[ending]()
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        print(f"written: {path}")
    if arguments.pictures is None:
        return 0
    try:
        made = picture.pictures(html_page.charts_of(run, html_page.story(run)), theme)
    except picture.NoPicture as error:
        print(f"{arguments.parser.prog}: {error}", file=sys.stderr)
        return 1
    for name, content in made.items():
        path = arguments.pictures / f"{exchange.file_name(run, '').removesuffix('.')}-{name}"
        path.write_bytes(content)
        print(f"written: {path}")
    return 0


def _stored(arguments: argparse.Namespace) -> Run:
    """The run that is asked for. Leaves by SystemExit(2) with the legal names."""
    store, shipped = Store(), recorded_runs()[0]
    ids = [entry.run.id for entry in store.entries()]
    fitting = [i for i in ids if i == arguments.which] or [i for i in ids if i.startswith(arguments.which)]
    fitting = ids[:1] if arguments.which == "last" else fitting
    if len(fitting) == 1 and (run := store.load(fitting[0])) is not None:
        return run
    if arguments.which in shipped:
        return shipped[arguments.which]
    many = f"begins {len(fitting)} ids" if fitting else "is no run here"
    legal = ", ".join([*(["last"] if ids else []), *ids[:NAMED], *shipped])
    arguments.parser.error(f"{shown(arguments.which)} {many}; legal: {legal}")


def _import(arguments: argparse.Namespace) -> int:
    """0 when nothing was refused; what can be taken is taken all the same."""
    store, ids = Store(), {run.id for run in recorded_runs()[0].values()}
    outcomes = [outcome for path in arguments.paths for outcome in exchange.take_from(store, path, ids)]
    for outcome in outcomes:
        print(outcome.text, file=sys.stderr if outcome.status == "refused" else sys.stdout)
    if store.problem:
        print(f"{arguments.parser.prog}: {store.problem}", file=sys.stderr)
    return 1 if store.problem or any(outcome.status == "refused" for outcome in outcomes) else 0


def _plan(arguments: argparse.Namespace) -> int:
    problem = AttentionProblem(
        batch=arguments.batch, seq_q=arguments.seq, heads=arguments.heads, kv_heads=arguments.kv_heads,
        head_dim=arguments.dim, dtype=arguments.dtype, causal=arguments.causal,
        direction=FORWARD_BACKWARD if arguments.backward else FORWARD,
    )  # fmt: skip
    room = calculate.room_of(arguments.gpu or _this_device())
    print("\n".join(calculate.plan_lines(problem, room)))
    if arguments.json:
        text = json.dumps(calculate.plan(problem, room), indent=1, allow_nan=False)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
        print(f"written: {arguments.json}")
    return 0


def _this_device(dtype: str = "") -> Device:
    """What the worker measures on; with a dtype and without a data sheet once the ceilings are measured. Raises OSError."""
    store = Store()
    lab = Lab(store)
    try:
        with _interrupts() as check:
            _device_kind(lab, check)
            snapshot = lab.snapshot()
            while (device := snapshot.worker.device) is not None and dtype:
                if calculate.roof_known(device, dtype) or device.matmul_tflops or snapshot.worker.state == "failed":
                    break
                check()
                lab.changed(snapshot.version, timeout=1.0)
                snapshot = lab.snapshot()
    finally:
        lab.close()
    if device is None:
        raise OSError(f"no device: {snapshot.worker.text or 'the worker did not start'}; name a card with --gpu")
    return device


def _compare(arguments: argparse.Namespace) -> int:
    shape = dict(batch=arguments.batch, seq_q=arguments.seq, heads=arguments.heads, head_dim=arguments.dim)
    AttentionProblem(**shape)  # what cannot be is refused before a worker starts
    messages: queue.Queue[tuple[str, WorkerProcess, bytes | None]] = queue.Queue()
    worker = WorkerProcess(default_worker_command(), messages)
    refusal = None
    try:
        for message in _messages(messages):
            if message["event"] == "hello":
                dtype = arguments.dtype or default_sweep(message["device"]["kind"]).problem.dtype
                problem = AttentionProblem(**shape, dtype=dtype).to_json()
                worker.send({"do": "compare", "id": 1, "problem": problem, "flash": arguments.flash,
                             "steps": arguments.steps})  # fmt: skip
            elif message["event"] == "waiting":
                print(f"{arguments.parser.prog}: waiting: {message['text']}", file=sys.stderr)
            elif message["event"] == "round" and "reason" not in message:
                _print_round(message)
            elif message["event"] in ("round", "fatal"):
                refusal = message["reason"]
            elif message["event"] == "done" and refusal is None:
                return 0
            if refusal is not None:
                break
    finally:
        how = worker.end(grace_s=1.0)
    print(f"{arguments.parser.prog}: {refusal or f'the worker ended before it was done ({how})'}", file=sys.stderr)
    return 1


def _messages(inbox: queue.Queue[tuple[str, WorkerProcess, bytes | None]]) -> Iterator[dict[str, Any]]:
    """What the worker says, until its output ends."""
    while (line := inbox.get()[2]) is not None:
        message = protocol.parse(line.decode("utf-8", "replace"))
        if message is not None and "event" in message:
            yield message


def _print_round(message: dict[str, Any]) -> None:
    if message["step"] == 0:
        return  # cold: what loads, compiles and warms up is in it
    print(f"Step {message['step']}")
    print(f"Normal Attention : {message['standard_ms']:.2f} ms")
    print(f"FlashAttention   : {message['flash_ms']:.2f} ms", flush=True)
