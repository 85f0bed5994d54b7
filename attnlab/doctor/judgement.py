"""What the children answered → findings. Pure: the same answers give the same words; what is not answered yet is "checking".

What one child says is often explained by another: a PyTorch without CUDA is right on a machine without a GPU and a mistake on
one with a GPU, and a package that cannot be tried is not broken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from attnlab.doctor.causes import (
    DRIVER_COMMANDS,
    FLASH_ATTN_4,
    OLDER_BUILD,
    OLDEST_DRIVERS,
    OTHER_DRIVER_COMMAND,
    About,
    Explained,
    cuda_version,
    explain,
    major,
)
from attnlab.doctor.finding import Answer, Finding
from attnlab.doctor.scrub import scrub
from attnlab.units import size

# name → what it is called; the order of the table
WHAT = {
    "torch": "PyTorch",
    "driver": "NVIDIA driver",
    "gpu": "GPU",
    "flash-attn-4": "flash-attn 4",
    "flash-attn-3": "flash-attn 3",
    "flash-attn-2": "flash-attn 2",
    "sdpa-flash": "PyTorch flash",
    "sdpa-cudnn": "cuDNN attention",
    "triton": "Triton",
    "nvml": "NVML",
    "profiler": "Profiler",
    "ncu": "Nsight Compute",
    "browser": "Browser for PNG",
}
# Which child answers for it, where that has another name.
CHILD = {"driver": "system", "gpu": "torch", "nvml": "system"}
CHILDREN = tuple(dict.fromkeys(CHILD.get(name, name) for name in WHAT))
NEED_GPU = ("sdpa-cudnn", "triton")
NEEDS_GPU = "a launch needs an NVIDIA GPU that PyTorch can use"
NOT_STARTED = "could not be started"
ALONE = ("ncu", "browser")  # judged by their own answer
NEED_TORCH = ("flash-attn-4", "flash-attn-3", "flash-attn-2", "sdpa-flash", "sdpa-cudnn", "triton", "profiler")
STAGES = {
    "import torch": "importing PyTorch",
    "cuda": "starting CUDA",
    "load": "importing the package",
    "launch": "launching a tiny kernel",
    "profile": "profiling a product",
    "picture": "making a picture",
    "counters": "asking for counters",
}
FOUR_LAST = (
    "a pre-release: pip takes it by its exact version or with --pre; installing flash-attn 2 again afterwards writes over the "
    "folder that both share, so 4 goes last"
)
CAPABILITY_MIN = 8.0
MIXED_LIBRARIES = (
    "PyTorch's libraries do not fit one another: other copies of them are found first, often by LD_LIBRARY_PATH, or a package "
    "of NVIDIA's is missing"
)


@dataclass(frozen=True)
class Machine:
    """What the first two children said, and what follows from both."""

    system: Answer
    torch: Answer
    pip: str = "python -m pip"

    @property
    def torch_works(self) -> bool:
        return bool(self.torch.get("torch"))

    @property
    def usable(self) -> bool:
        """Whether the lab can measure something: PyTorch loads, and the GPU that its worker will take does not fail it."""
        return self.torch_works and not self.torch.end and not (self.torch.get("cards") and self.torch.error)

    @property
    def usable_gpu(self) -> bool:
        return bool(self.torch.get("cards")) and not self.torch.failed

    @property
    def gpu_seen(self) -> bool:
        """Without CUDA and without PyTorch: by the driver, or on the bus."""
        s = self.system
        if s.get("driver"):  # NVML has answered, and counts
            return bool(s.get("nvml_cards"))
        return bool(s.get("proc_driver") or s.get("pci_cards") or s.get("nvidia_smi"))

    @property
    def driver_seen(self) -> bool:
        return bool(self.system.get("driver") or self.system.get("proc_driver") or self.system.get("nvidia_smi"))

    @property
    def card(self) -> str:
        cards = [card["name"] for card in self.torch.get("cards", [])] or self.system.get("nvml_cards", [])
        return cards[0] if cards else "an NVIDIA GPU"

    @property
    def capability(self) -> str:
        return next((card["capability"] for card in self.torch.get("cards", [])), "")

    @property
    def built(self) -> str:
        t = self.torch
        cuda = f"CUDA {t.get('cuda')}" if t.get("cuda") else "no CUDA"
        abi = "on" if t.get("cxx11_abi") else "off"
        return f"torch {t.get('torch') or 'unknown'}, {cuda}, C++11 ABI {abi}, Python {self.system.get('python') or 'unknown'}"

    def version(self, package: str) -> str:
        return self.system.get("packages", {}).get(package, "")

    def about(self, package: str = "this PyTorch", repair: str | None = None) -> About:
        version = str(self.torch.get("torch")).partition("+")[0]
        torch_repair = f"{self.pip} install --force-reinstall torch" + (f"=={version}" if version else "")
        return About(
            package=package,
            repair=torch_repair if repair is None else repair,
            built=self.built,
            cuda=self.torch.get("cuda"),
            oldest_driver=OLDEST_DRIVERS.get(major(self.torch.get("cuda")), "a newer one"),
            card=self.card,
            capability=self.capability,
            arch_list=", ".join(self.torch.get("arch_list", [])) if package == "this PyTorch" else "",
            torch_repair=torch_repair,
            driver_command=DRIVER_COMMANDS.get(self.system.get("distribution"), OTHER_DRIVER_COMMAND),
            pip=self.pip,
        )


def findings(answers: Mapping[str, Answer], pip: str = "python -m pip") -> tuple[Finding, ...]:
    """One for each of WHAT, in that order, from the answers that are here."""
    machine = Machine(answers.get("system", Answer()), answers.get("torch", Answer()), pip)
    judged = []
    for name, what in WHAT.items():
        known = [CHILD.get(name, name), *(() if name in ALONE else ("system", "torch"))]
        if all(child in answers for child in known):
            judged.append(replace(JUDGES[name](name, answers[known[0]], machine), what=what))
        else:
            judged.append(Finding(name=name, what=what, status="checking"))
    return tuple(judged)


def skip(child: str, machine: Machine) -> str:
    """Why this child need not run, in words; "" when it must."""
    if child in NEED_TORCH and not machine.torch_works:
        return "PyTorch cannot be loaded"
    if child in NEED_TORCH and machine.torch.end:
        return "PyTorch does not get through starting CUDA"
    if child in NEED_GPU and not machine.usable_gpu:
        return "it needs an NVIDIA GPU that PyTorch can use"
    return ""


# One judge for each finding


def _torch(name: str, answer: Answer, machine: Machine) -> Finding:
    version = answer.get("torch")
    if not version:
        found = _broken(name, answer, machine.about("PyTorch"))
        if found.kind in ("abi", "cuda-library"):
            found = replace(found, cause=MIXED_LIBRARIES, remedy="env -u LD_LIBRARY_PATH python -m attnlab doctor")
        return found
    target = f"CUDA {answer.get('cuda')}" if answer.get("cuda") else "ROCm" if answer.get("hip") else "CPUs"
    abi = "on" if answer.get("cxx11_abi") else "off"
    facts = f"built for {target}, C++11 ABI {abi}, Python {machine.system.get('python')}"
    if target != "CPUs" or not machine.gpu_seen:
        return Finding(name=name, status="works", version=version, facts=facts)
    return Finding(
        name=name, status="limited", version=version, facts=facts, kind="cpu-wheel",
        cause=f"{machine.card} is here, and this PyTorch is built for CPUs alone", remedy=machine.about().torch_repair,
    )  # fmt: skip


def _driver(name: str, answer: Answer, machine: Machine) -> Finding:
    version = answer.get("driver") or answer.get("proc_driver")
    runs = answer.get("driver_cuda")
    facts = f"runs CUDA up to {cuda_version(runs)}" if runs else ""
    about = machine.about()
    base = Finding(name=name, status="works", version=version, facts=facts)
    if answer.end:
        return _broken(name, answer, replace(about, package="the driver", repair="nvidia-smi"))
    if not machine.driver_seen:
        if answer.get("pci_cards"):
            cause = "an NVIDIA GPU is on the bus, and no driver is loaded for it"
            return replace(base, status="broken", kind="no-driver", cause=cause, remedy=about.driver_command)
        cause = "there is no NVIDIA GPU and no driver; none is needed to measure the CPU's kernels"
        return replace(base, status="missing", kind="no-gpu", cause=cause)
    said = "\n".join([machine.torch.error, *machine.torch.get("warnings", []), answer.get("nvml_error")])
    explained = explain(said, about)
    if explained.kind in ("driver-old", "driver-stale", "fabric"):
        return _of(base, "broken", explained, said)
    if runs and machine.torch.get("cuda") and runs // 1000 < major(machine.torch.get("cuda")):
        return _of(base, "broken", explain(f"driver on your system is too old (found version {runs})", about), "")
    return base


def _gpu(name: str, answer: Answer, machine: Machine) -> Finding:
    about = machine.about()
    base = Finding(name=name, status="works", facts=_cards(machine))
    if machine.usable_gpu:
        old = [card for card in answer.get("cards") if float(card["capability"]) < CAPABILITY_MIN]
        if old:
            text = "FlashAttention only supports Ampere"
            return _of(base, "limited", explain(text, replace(about, package="FlashAttention")), "")
        return base
    if answer.end and machine.torch_works:  # at starting CUDA, GPU or not: the lab's worker would end there too
        return _broken(name, answer, replace(about, package="CUDA", repair="nvidia-smi"), facts=base.facts)
    if not machine.gpu_seen and not answer.get("cards"):
        cause = "no NVIDIA GPU is seen here; the lab measures the CPU's kernels, and nothing need be installed for that"
        return replace(base, status="missing", kind="no-gpu", cause=cause)
    if machine.system.get("hidden"):
        return _of(base, "untried", explain("no CUDA-capable device", about), "")
    if not machine.torch_works:
        return replace(base, status="untried", cause="PyTorch cannot be loaded")
    if not answer.get("cuda") and not answer.get("hip"):
        return _of(base, "untried", explain("not compiled with CUDA enabled", about), "")
    if not machine.driver_seen:
        return _of(base, "broken", explain("Found no NVIDIA driver", about), answer.error)
    found = _broken(name, _with_warnings(answer), about, facts=base.facts)
    return replace(found, **_other_build(machine)) if found.kind == "no-kernel-image" else found


def _other_build(machine: Machine) -> dict[str, str]:
    """What to add to the cause, and the remedy, where PyTorch itself has no kernel for a card: a newer one knows new cards."""
    known = [int(found) for arch in machine.torch.get("arch_list", []) for found in re.findall(r"sm_(\d+)", arch)]
    wanted = int(machine.capability.replace(".", "") or 0)
    about = machine.about()
    cause = explain("no kernel image is available", about).cause
    if known and wanted < min(known):
        cause = f"{cause}; {OLDER_BUILD} still has them"
        return {
            "cause": cause,
            "remedy": "env CUDA_VISIBLE_DEVICES= python -m streamlit run app.py   # measures on the CPU",
        }
    return {"cause": cause, "remedy": f"{machine.pip} install --upgrade torch"}


def _package(name: str, answer: Answer, machine: Machine) -> Finding:
    """flash-attn 2, 3 and 4."""
    base = Finding(name=name, status="works", version=answer.get("version"))
    if answer.get("missing"):
        return _not_installed(base, machine)
    if skipped := answer.get("skipped"):
        return replace(base, status="untried", cause=skipped, version=machine.version(name.removesuffix("-2")))
    about = machine.about(f"{name.removesuffix('-2')} {base.version}".strip(), _repair(name, machine))
    if answer.failed:
        found = _broken(name, answer, about, version=base.version)
        overwritten = found.kind in ("import", "error") and machine.version("flash-attn")
        if name == "flash-attn-4" and overwritten and answer.get("stage") == "load":
            cause = f"flash-attn {overwritten} was installed after it and wrote over the folder that both share"
            return replace(found, kind="overwritten", cause=cause)
        if found.kind == "dependency" and not machine.usable_gpu:  # PyTorch for a GPU brings it, or nothing needs it
            return replace(found, status="untried", kind="", cause=f"{found.cause}; {NEEDS_GPU}", remedy="")
        return found
    notes = []
    if re.search(r"lib(c10|torch\w*)\.so", answer.get("alone")):
        notes.append(
            "its extension finds PyTorch's libraries (libc10) only when torch is imported first: order, not a fault"
        )
    if machine.usable_gpu:
        return replace(base, facts="; ".join(["a tiny launch answers right", *notes]))
    return replace(base, status="untried", facts="; ".join(["it loads", *notes]), cause=NEEDS_GPU)


def _not_installed(base: Finding, machine: Machine) -> Finding:
    pip, name = machine.pip, base.name
    if not machine.usable_gpu:
        return replace(base, status="missing", cause="not installed; it needs an NVIDIA GPU that PyTorch can use")
    if float(machine.capability or 0) < CAPABILITY_MIN:
        return replace(base, status="missing", cause="not installed; it needs compute capability 8.0 or above")
    hopper = machine.capability.startswith("9.")
    if name == "flash-attn-3":
        cause = "not installed; for Hopper, built in a checkout of the flash-attention repository"
        return replace(base, status="missing", cause=cause, remedy=_repair(name, machine) if hopper else "")
    if name == "flash-attn-4":
        cause = f"not installed; {FOUR_LAST}"
        return replace(base, status="missing", cause=cause, remedy=f"{pip} install '{FLASH_ATTN_4}'")
    cause = "not installed; optional: it needs nvcc, or a wheel that matches PyTorch exactly"
    four = _four_again(machine)
    return replace(
        base, status="missing", cause=cause,
        remedy=f"{pip} install packaging ninja && {pip} install flash-attn --no-build-isolation{four}",
    )  # fmt: skip


def _repair(name: str, machine: Machine) -> str:
    """The command that makes the package anew for the PyTorch here."""
    pip = machine.pip
    if name == "flash-attn-4":
        return f"{pip} install '{FLASH_ATTN_4}' && {pip} install --force-reinstall --no-deps '{_bare(FLASH_ATTN_4)}'"
    if name == "flash-attn-3":
        return "cd flash-attention/hopper && python setup.py clean --all install"
    build = "install --force-reinstall --no-deps --no-cache-dir --no-build-isolation flash-attn"
    return (
        f"{pip} install packaging ninja einops && FLASH_ATTENTION_FORCE_BUILD=TRUE {pip} {build}{_four_again(machine)}"
    )


def _four_again(machine: Machine) -> str:
    """What to add to an installation of flash-attn 2, which writes over the folder of 4."""
    there = machine.version("flash-attn-4")
    return f" && {machine.pip} install --force-reinstall --no-deps flash-attn-4=={there}" if there else ""


def _bare(requirement: str) -> str:
    return re.sub(r"\[.*?\]", "", requirement)


def _sdpa(name: str, answer: Answer, machine: Machine) -> Finding:
    version = cudnn_version(answer.get("version")) if name == "sdpa-cudnn" else str(machine.torch.get("torch"))
    base = Finding(name=name, status="works", version=version, facts="a tiny launch answers right")
    if skipped := answer.get("skipped"):
        return replace(base, status="untried", facts="", cause=skipped)
    if answer.failed:
        return _broken(name, answer, machine.about(WHAT[name]), version=version)
    return base


def cudnn_version(number: str) -> str:
    """cuDNN's 91002 as "9.10.2" (cudnn_version.h, since 9: major × 10000 + minor × 100 + patch); 8905 as "8.9.5"."""
    if not number.isdigit():
        return number
    n = int(number)
    high = 10_000 if n >= 90_000 else 1000
    return f"{n // high}.{n % high // 100}.{n % 100}"


def _triton(name: str, answer: Answer, machine: Machine) -> Finding:
    base = Finding(name=name, status="works", version=machine.version("triton"), facts="a kernel compiles and runs")
    if skipped := answer.get("skipped"):
        cause = skipped if base.version else f"not installed; {skipped}"
        return replace(base, status="untried" if base.version else "missing", facts="", cause=cause)
    if answer.failed:
        about = machine.about(f"triton {base.version}".strip(), machine.about().torch_repair)
        return _broken(name, answer, about, version=base.version)
    return base


def _nvml(name: str, answer: Answer, machine: Machine) -> Finding:
    base = Finding(name=name, status="works", version=machine.version("nvidia-ml-py"))
    error = answer.get("nvml_error")
    if answer.end:
        return _broken(name, answer, replace(machine.about("NVML"), repair="nvidia-smi"), version=base.version)
    if not error:
        return replace(base, facts="memory, clocks and power of the card can be read")
    if "No module named" in error:
        return replace(
            base, status="limited" if machine.gpu_seen else "missing", kind="dependency",
            cause="nvidia-ml-py is not installed; without it no clock, power or driver memory stands beside a number",
            remedy=f"{machine.pip} install nvidia-ml-py",
        )  # fmt: skip
    if not machine.gpu_seen:
        return replace(base, status="untried", cause="there is no NVIDIA driver to ask")
    explained = explain(error, machine.about())
    cause = explained.cause if explained.kind != "error" else "the driver does not answer"
    return replace(base, status="broken", kind=explained.kind, cause=cause, remedy=explained.remedy or "nvidia-smi",
                   detail=first_line(error))  # fmt: skip


def _profiler(name: str, answer: Answer, machine: Machine) -> Finding:
    base = Finding(name=name, status="works", version=str(machine.torch.get("torch")))
    if skipped := answer.get("skipped"):
        return replace(base, status="untried", cause=skipped)
    if answer.failed:
        return _broken(name, answer, machine.about("the profiler"), version=base.version)
    kind = "kernels of the GPU" if machine.usable_gpu else "operators of the CPU"
    return replace(base, facts=f"names the {kind}: {answer.get('kernel')}")


def _ncu(name: str, answer: Answer, machine: Machine) -> Finding:
    base = Finding(name=name, status="works", version=answer.get("version"), facts="performance counters can be read")
    if answer.get("missing"):
        return replace(base, status="missing", facts="", cause="not installed; optional, the lab does without")
    if answer.failed:
        return replace(_broken(name, answer, machine.about("ncu", "ncu --version")), version=base.version)
    return base


def _browser(name: str, answer: Answer, machine: Machine) -> Finding:
    facts = f"{answer.get('name')} makes pictures"
    base = Finding(name=name, status="works", version=answer.get("version"), facts=facts)
    remedy = "sudo apt-get install chromium"
    if answer.get("missing"):
        cause = "no Chromium is on the PATH; pictures can still be saved with the camera of each chart"
        return replace(base, status="missing", facts="", cause=cause, remedy=remedy)
    if answer.failed:
        about = About(package=answer.get("name") or "the browser", repair=f"{remedy} --reinstall")
        return replace(_broken(name, answer, about), version=base.version)
    return base


JUDGES = {
    "torch": _torch,
    "driver": _driver,
    "gpu": _gpu,
    "flash-attn-4": _package,
    "flash-attn-3": _package,
    "flash-attn-2": _package,
    "sdpa-flash": _sdpa,
    "sdpa-cudnn": _sdpa,
    "triton": _triton,
    "nvml": _nvml,
    "profiler": _profiler,
    "ncu": _ncu,
    "browser": _browser,
}


# Parts


def _cards(machine: Machine) -> str:
    """Name, capability, memory, L2 and highest clocks of each card, in one line."""
    clocks = machine.system.get("max_clocks_mhz", [])
    lines = []
    for i, card in enumerate(machine.torch.get("cards", [])):
        parts = [card["name"], f"compute capability {card['capability']}", size(card["total_bytes"])]
        parts += [f"L2 {size(card['l2_bytes'])}"] if card.get("l2_bytes") else []
        parts += [f"up to {clocks[i][0]:,} MHz, its memory {clocks[i][1]:,} MHz"] if i < len(clocks) else []
        lines.append(", ".join(parts))
    return "; ".join(lines or machine.system.get("nvml_cards", []))


def _with_warnings(answer: Answer) -> Answer:
    said = "\n".join(filter(None, [answer.error, *answer.get("warnings", [])]))
    return Answer(answer.facts | {"error": said or "torch.cuda.is_available() is False"}, answer.end)


def _broken(name: str, answer: Answer, about: About, **more: str) -> Finding:
    base = Finding(name=name, status="broken", **more)
    if answer.error:
        return _of(base, "broken", explain(answer.error, about), answer.error)
    if answer.end.startswith(NOT_STARTED):
        remedy = "env -u ATTNLAB_WORKER python -m attnlab doctor"
        return replace(
            base, kind="start", cause=f"its process {NOT_STARTED}", remedy=remedy, detail=first_line(answer.end)
        )
    stage = STAGES.get(answer.get("stage"), "")
    explained = explain(answer.end, about)  # its last words may say why
    cause = f"its process {answer.end.partition(': ')[0]}{f' while {stage}' if stage else ''}"
    if explained.kind != "error":
        cause = f"{cause}: {explained.cause}"
    kind = "hang" if answer.end.startswith("gave no answer") else "crash"
    return replace(base, kind=kind, cause=cause, remedy=explained.remedy, detail=first_line(answer.end))


def _of(base: Finding, status: str, explained: Explained, error: str) -> Finding:
    cause, detail = explained.cause, first_line(error)
    return replace(base, status=status, kind=explained.kind, cause=cause, remedy=explained.remedy, detail=detail)


def first_line(error: str) -> str:
    """The first line that says something, without paths, shortened."""
    line = next((part.strip() for part in error.splitlines() if part.strip()), "")
    return scrub(" ".join(line.split()))[:300]
