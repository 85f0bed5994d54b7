"""The devices of this machine, and how a worker is told to measure on one of them.

    chosen("all")       every GPU that a program may use; the CPU where there is none
    chosen("0,cpu")     the first of them and the CPU; a UUID names one as well

A worker sees the GPU that it is to use, and no other. Nothing here starts CUDA.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from attnlab import nvml


@dataclass(frozen=True)
class Choice:
    """`variable` and `value`: what the environment of a worker says, so that it measures there."""

    name: str  # for people
    variable: str
    value: str

    @property
    def short(self) -> str:
        """The name with no more of a UUID than tells two cards apart: "NVIDIA H200 GPU-cdedaedf"."""
        return re.sub(r"(GPU-[0-9a-f]{8})-[0-9a-f-]+", r"\1", self.name)


CPU = Choice("CPU", "ATTNLAB_DEVICE", "cpu")


def here() -> tuple[Choice, ...]:
    """The GPUs that a program may use, in the driver's order; the CPU alone where there is none."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        gpus = [(f"{card.name} {card.uuid}", card.uuid) for card in nvml.cards()]
    else:
        gpus = [(f"GPU {entry}", entry) for entry in map(str.strip, allowed.split(",")) if entry not in ("", "-1")]
    return tuple(Choice(name, "CUDA_VISIBLE_DEVICES", value) for name, value in gpus) or (CPU,)


def chosen(text: str, there: Sequence[Choice]) -> tuple[Choice, ...]:
    """What a user names, of the devices that are `there`, each once. Raises ValueError with the legal values."""
    if text == "all":
        return tuple(there)
    gpus = [choice for choice in there if choice is not CPU]
    named = {"cpu": CPU} | {str(i): choice for i, choice in enumerate(gpus)} | {gpu.value: gpu for gpu in gpus}
    for word in (words := [word.strip() for word in text.split(",")]):
        if word not in named:
            numbers = "".join(f", {i} ({choice.name})" for i, choice in enumerate(gpus))
            raise ValueError(f"device is {word[:80]!r}; legal: all, or with commas between them: cpu{numbers}")
    return tuple(dict.fromkeys(named[word] for word in words))


def worker_command(choice: Choice, usual: Sequence[str]) -> list[str]:
    """The command of a worker that measures there; `usual` as lab.default_worker_command gives it."""
    return ["env", f"{choice.variable}={choice.value}", *usual]
