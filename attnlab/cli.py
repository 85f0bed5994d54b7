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
bad arguments with one line that names the legal values, 130 when interrupted. How arguments are read is in
attnlab.arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnlab import (
    calculate,
    chart_parts,
    claims,
    comparison,
    devices,
    exchange,
    html_page,
    nvml,
    picture,
    protocol,
    table,
    tabular,
)
from attnlab.arguments import FORMATS, parse, sweep_of
from attnlab.checked import shown
from attnlab.device import Device
from attnlab.doctor import report
from attnlab.doctor.examination import Examination
from attnlab.export import recorded_runs, write_run
from attnlab.installed import lacks
from attnlab.lab import Lab, default_worker_command
from attnlab.problem import FORWARD, FORWARD_BACKWARD, AttentionProblem, ProblemError
from attnlab.process import WorkerProcess
from attnlab.run import Run
from attnlab.store import Store
from attnlab.sweep import default_sweep

EVERY_S = 0.2  # between two looks at several runs
NAMED = 5  # runs that an error names


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code. Bad arguments leave by SystemExit(2), as argparse does."""
    if sys.stdout is None:  # closed by the caller: what is printed goes nowhere
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout.reconfigure(errors="replace")  # a terminal without "×" shows "?" rather than a traceback
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        return RUN[arguments.command](arguments)
    except ProblemError as error:
        arguments.parser.error(str(error))
    except KeyboardInterrupt:
        print(f"{arguments.parser.prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read this has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        print(f"{arguments.parser.prog}: {lacks(error.name)}", file=sys.stderr)
        return 1
    except OSError as error:  # a worker command that does not exist, a disk that is full
        print(f"{arguments.parser.prog}: {error}", file=sys.stderr)
        return 1


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
        made = picture.pictures(html_page.charts_of(run, chart_parts.opens_with(run.sweep.paths, run.recorded)), theme)
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


RUN = {  # one for each of attnlab.arguments.COMMANDS
    "compare": _compare,
    "sweep": _sweep,
    "check": _sweep,
    "record": _record,
    "roofline": _roofline,
    "plan": _plan,
    "claims": _claims,
    "export": _export,
    "import": _import,
    "doctor": _doctor,
}
