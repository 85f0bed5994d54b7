"""Arguments as they are typed, read into what a command works with: a Namespace and, where it measures, a Sweep.

    parse(["sweep", "--seqs", "128,256"])     a Namespace: the command, its options, and the parser that refuses bad ones
    sweep_of(namespace, "cpu")                the Sweep that it asks for; what is left open is what fits the device

An argument that cannot be is refused before anything is measured, in one line that names the legal values. Nothing here
runs a command: attnlab.cli does. The lines that attnlab.command_line writes are read here into the same sweeps again.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from attnlab import claims, hardware, textbook, verdicts
from attnlab.command_line import PROGRAM
from attnlab.paths import PATHS
from attnlab.presets import PRESETS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, FORWARD_BACKWARD, LIMITS, AttentionProblem
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
FORMATS = ("json", "csv", "parquet", "md", "html")  # of an export, an option and a file each


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one line without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was typed: `command`, its options, and `parser`, which words a refusal. Bad arguments leave by SystemExit(2)."""
    parser = _Parser(prog=PROGRAM, description="Standard attention and FlashAttention, measured.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar=f"{{{','.join(COMMANDS)}}}")
    for name, (add, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.set_defaults(parser=command)
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
    try:
        path = path.expanduser()
        writable = path.is_dir() and os.access(path, os.W_OK)
    except (OSError, RuntimeError, ValueError):  # as above
        writable = False
    if not writable:
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


COMMANDS = {  # what adds a command's options, and what it is for
    "compare": (_add_compare, "two paths back to back, round by round, wall clock"),
    "sweep": (_add_sweep, "latency and memory against sequence length, as a live table"),
    "check": (_add_check, "a look at the answers: exactness, determinism, edges, support"),
    "record": (_add_record, "a sweep or a look, written as a file that the page replays"),
    "roofline": (_add_roofline, "time on paper: FLOPs over peak and bytes over bandwidth"),
    "plan": (_add_plan, "what each path needs of a device's memory, and what fits"),
    "claims": (_add_claims, "what people say of FlashAttention, tested here"),
    "export": (_add_export, "a run as files: JSON, CSV, Parquet, Markdown, HTML, PNG and SVG"),
    "import": (_add_import, "runs from other machines into the store: JSON files, or folders of them"),
    "doctor": (_add_doctor, "what is installed, whether it works, and what to do about the rest"),
}
