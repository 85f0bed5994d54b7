"""The doctor: errors that people reported mean what they mean, every state of an installation is told from the others, and
nothing that a child does reaches whoever asked."""

import doctest
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from samples import CPU as CPU_DEVICE
from samples import H200 as H200_DEVICE
from stub_packages import H200, V100, Site, launch_raises, raises

from attnlab.device import PathStatus
from attnlab.doctor import causes, examination, report, scrub
from attnlab.doctor.causes import About, explain
from attnlab.doctor.examination import Examination, ask_command
from attnlab.doctor.finding import Answer, Finding
from attnlab.doctor.judgement import CHILDREN, WHAT, Machine, cudnn_version, findings
from attnlab.doctor.summary import doctor_line, lab_line
from attnlab.run import WorkerState

ROOT = Path(__file__).resolve().parents[1]
REAL_DRIVER = os.path.exists("/proc/driver/nvidia/version")
UNDEFINED = "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

# What a machine answers where all is well.
SYSTEM = Answer(
    {"python": "cp312", "packages": {}, "driver": "580.95.05", "driver_cuda": 13000, "nvml_cards": ["NVIDIA H200"],
     "max_clocks_mhz": [[1980, 3201]], "distribution": "ubuntu"}
)  # fmt: skip
CARD = {"name": "NVIDIA H200", "capability": "9.0", "total_bytes": 140 << 30, "l2_bytes": 60 << 20}
TORCH = Answer(
    {"torch": "2.13.0+cu130", "cuda": "13.0", "cxx11_abi": True, "arch_list": ["sm_80", "sm_90"], "cards": [CARD]}
)
NO_GPU = Answer({"python": "cp312", "packages": {}, "nvml_error": "NVMLError: NVML Shared Library Not Found"})
CPU_TORCH = Answer({"torch": "2.13.0+cpu", "cuda": "", "cxx11_abi": True, "cards": []})


def more(answer, **facts):
    return Answer(answer.facts | facts, answer.end)


def judged(system=SYSTEM, torch=TORCH, **others):
    """The findings by name; a child that is not given works."""
    works = {name: Answer({"version": "1"}) for name in CHILDREN}
    answers = works | {"system": system, "torch": torch} | {name.replace("_", "-"): a for name, a in others.items()}
    return {finding.name: finding for finding in findings(answers)}


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Site(tmp_path / "site-packages")


def probe(name, limit_s=60.0):
    return ask_command([sys.executable, "-u", "-m", "attnlab.measure.probes", name], limit_s, threading.Event())


def probed(*names):
    """The findings of real children on the stubs of this test; those that are not named are well."""
    return judged(**{name.replace("-", "_"): probe(name) for name in dict.fromkeys(("system", "torch", *names))})


# The text of an error, as people reported it

REPORTED = [
    (f"ImportError: /opt/lib/python3.12/site-packages/flash_attn_2_cuda.so: {UNDEFINED}", "abi"),
    ("ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEa", "abi"),
    ("ImportError: libc10.so: cannot open shared object file: No such file or directory", "abi"),
    ("ImportError: libtorch_cuda_cpp.so: cannot open shared object file: No such file or directory", "abi"),
    ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "cuda-library"),
    ("ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by x.so)", "system-library"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
     "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx", "driver-old"),
    ("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11000).", "driver-old"),
    ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver-old"),
    ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
     "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver "
     "combination", "driver-stale"),
    ("NVMLError_LibRmVersionMismatch: Driver/library version mismatch", "driver-stale"),
    ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "fabric"),
    ("AssertionError: Torch not compiled with CUDA enabled", "cpu-wheel"),
    ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "no-driver"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernel-image"),
    ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
     "no-kernel-image"),
    ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "capability"),
    ("RuntimeError: FlashAttention only supports Hopper GPUs or newer.", "capability"),
    ("flash-attn-4 has no kernel for compute capability 8.0", "capability"),
    ("Flash attention only supports gpu architectures in the range [sm80, sm121]. Attempting to run on a sm 7.0 gpu.",
     "capability"),
    ("RuntimeError: No available kernel. Aborting execution.", "refused"),
    ("TimeoutExpired: Command '['/usr/bin/chromium', '--version']' timed out after 30.0 seconds", "hang"),
    ("ModuleNotFoundError: No module named 'flash_attn_2_cuda'", "other-python"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal-access"),
    ("CUDA error (hopper/flash_fwd_launch_template.h:198): an illegal memory access was encountered", "illegal-access"),
    ("RuntimeError: CUDA error: device-side assert triggered", "assert"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.", "out-of-memory"),
    ("RuntimeError: No CUDA GPUs are available", "hidden"),
    ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters", "counters"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "compiler"),
    ("ModuleNotFoundError: No module named 'torch'", "torch-missing"),
    ("ModuleNotFoundError: No module named 'einops'", "dependency"),
    ("ArithmeticError: answers 0 where 63.5 is right", "wrong-answer"),
    ("AttributeError: module 'cutlass' has no attribute 'cute'", "import"),
    ("ValueError: nobody has seen this", "error"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), REPORTED, ids=[f"{i}-{kind}" for i, (_, kind) in enumerate(REPORTED)])
def test_reported_errors_are_told_apart(text, kind):
    about = About(package="flash-attn 2", repair="REPAIR", torch_repair="TORCH", cuda="13.0", oldest_driver="580.65.06")
    found = explain(text, about)
    assert found.kind == kind
    assert "{" not in found.cause + found.remedy and found.cause and found.remedy


def test_every_row_of_the_table_has_a_reported_error():
    assert {row.kind for row in causes.CAUSES} == {kind for _, kind in REPORTED} - {"error"}


@pytest.mark.parametrize("module", [causes, scrub], ids=lambda module: module.__name__)
def test_the_examples_are_true(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


def test_the_pre_release_is_the_one_that_is_required():
    required = (ROOT / "requirements.txt").read_text()
    assert f"\n{causes.FLASH_ATTN_4} ;" in required


@pytest.mark.parametrize(("number", "said"), [("91002", "9.10.2"), ("8905", "8.9.5"), ("", ""), ("9.1", "9.1")])
def test_cudnn_versions(number, said):
    assert cudnn_version(number) == said


# Without a usable GPU: three states, three remedies (and more)


def test_no_gpu_needs_no_remedy():
    found = judged(NO_GPU, CPU_TORCH)
    assert found["gpu"].kind == found["driver"].kind == "no-gpu"
    assert not any(f.remedy for f in found.values())
    assert found["torch"].status == "works" and found["nvml"].status == "untried"


def test_a_cuda_build_without_a_gpu_is_no_fault_either():
    found = judged(NO_GPU, more(TORCH, cards=[], error="RuntimeError: Found no NVIDIA driver on your system."))
    assert found["gpu"].kind == "no-gpu" and found["torch"].status == "works"
    assert not any(f.remedy or f.status == "broken" for f in found.values())


def test_a_cpu_wheel_on_a_gpu_machine():
    found = judged(SYSTEM, CPU_TORCH)
    assert found["torch"].kind == found["gpu"].kind == "cpu-wheel"
    assert found["torch"].remedy == "python -m pip install --force-reinstall torch==2.13.0"
    assert "NVIDIA H200 is here" in found["torch"].cause and found["driver"].status == "works"


def test_a_driver_that_is_too_old_by_what_cuda_says():
    text = "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update"
    found = judged(more(SYSTEM, driver="550.54", driver_cuda=12040), more(TORCH, cards=[], error=text))
    assert found["driver"].kind == found["gpu"].kind == "driver-old"
    assert "CUDA up to 12.4" in found["driver"].cause and "580.65.06" in found["driver"].cause
    assert "older CUDA" in found["driver"].cause
    assert found["driver"].remedy == "sudo ubuntu-drivers install && sudo reboot"


def test_a_driver_that_is_too_old_by_its_number_alone():
    found = judged(more(SYSTEM, driver="550.54", driver_cuda=12040))
    assert found["driver"].kind == "driver-old"
    same_major = judged(more(SYSTEM, driver_cuda=13000), more(TORCH, cuda="13.2"))
    assert same_major["driver"].status == "works"  # minor versions of one CUDA are compatible


def test_a_gpu_without_a_driver():
    found = judged(
        more(NO_GPU, pci_cards=1, distribution="debian"), more(TORCH, cards=[], error="Found no NVIDIA driver")
    )
    assert found["driver"].kind == found["gpu"].kind == "no-driver"
    assert found["driver"].remedy == "sudo apt-get install nvidia-driver && sudo reboot"


def test_a_gpu_that_the_environment_hides():
    found = judged(more(SYSTEM, hidden=True), more(TORCH, cards=[], error="RuntimeError: No CUDA GPUs are available"))
    assert found["gpu"].kind == "hidden" and "CUDA_VISIBLE_DEVICES" in found["gpu"].remedy


def test_a_driver_updated_since_the_last_start():
    found = judged(more(NO_GPU, proc_driver="580.65.06", nvml_error="NVMLError: Driver/library version mismatch"),
                   more(TORCH, cards=[], error="Error 804: forward compatibility was attempted"))  # fmt: skip
    assert found["driver"].remedy == found["nvml"].remedy == "sudo reboot"


@pytest.mark.parametrize(("capability", "wanted"), [("12.0", "--upgrade torch"), ("6.1", "CUDA_VISIBLE_DEVICES= ")])
def test_pytorch_without_kernels_for_the_card(capability, wanted):
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    found = judged(torch=more(TORCH, cards=[CARD | {"capability": capability}], error=error))
    assert found["gpu"].kind == "no-kernel-image" and wanted in found["gpu"].remedy
    assert f"compute capability {capability}" in found["gpu"].cause and "sm_80, sm_90" in found["gpu"].cause
    # The worker takes a GPU that is there, and nothing runs on this one.
    machine = Machine(SYSTEM, more(TORCH, cards=[CARD], error=error))
    assert not machine.usable
    assert doctor_line(machine, tuple(found.values())) == f"The lab can measure nothing here: {found['gpu'].cause}."


def test_a_card_below_8_is_used_without_flash_attention():
    found = judged(torch=more(TORCH, cards=[CARD | {"capability": "7.0"}]), flash_attn_2=Answer({"missing": True}))
    assert (found["gpu"].status, found["gpu"].kind) == ("limited", "capability")
    assert found["flash-attn-2"].status == "missing" and not found["flash-attn-2"].remedy


def test_a_gpu_is_described():
    facts = judged()["gpu"].facts
    assert facts == "NVIDIA H200, compute capability 9.0, 140 GiB, L2 60 MiB, up to 1,980 MHz, its memory 3,201 MHz"


def test_pytorch_whose_libraries_do_not_fit():
    found = judged(torch=Answer({"error": "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister"}))
    assert found["torch"].kind == "abi" and "LD_LIBRARY_PATH" in found["torch"].remedy


@pytest.mark.parametrize("system", [SYSTEM, NO_GPU], ids=["gpu", "no-gpu"])
def test_a_driver_that_hangs_leaves_nothing_to_measure_with(system):
    hung = replace(TORCH, facts=TORCH.facts | {"cards": [], "stage": "cuda"}, end="gave no answer within 60 s")
    found = judged(system, hung)
    assert (found["gpu"].kind, found["gpu"].remedy) == ("hang", "nvidia-smi") and found["torch"].status == "works"
    assert not Machine(system, hung).usable
    assert doctor_line(Machine(system, hung), tuple(found.values())) == (
        "The lab can measure nothing here: its process gave no answer within 60 s while starting CUDA."
    )


def test_a_worker_that_cannot_be_started_is_no_fault_of_pytorch():
    answer = ask_command(["/no/such/program"], 5.0, threading.Event())
    found = judged(NO_GPU, answer)["torch"]
    assert (found.kind, found.remedy) == ("start", "env -u ATTNLAB_WORKER python -m attnlab doctor")
    assert "…/program" in found.detail


def test_what_waits_is_checking_and_what_is_known_is_said():
    found = {f.name: f for f in findings({"browser": Answer({"missing": True})})}
    assert found["browser"].remedy == "sudo apt-get install chromium"
    assert {f.status for name, f in found.items() if name != "browser"} == {"checking"}
    assert list(found) == list(WHAT)


def test_tools():
    found = judged(ncu=Answer({"version": "2025.3", "error": "PermissionError: ERR_NVGPUCTRPERM: RmProfilingAdminOnly is 1"}),
                   browser=Answer({"version": "156", "name": "chromium", "error": "RuntimeError: it made no picture"}),
                   profiler=Answer({"error": "RuntimeError: the profiler saw no kernel"}),
                   sdpa_cudnn=Answer({"version": "91002"}))  # fmt: skip
    assert found["ncu"].kind == "counters" and found["ncu"].version == "2025.3"
    assert found["browser"].status == found["profiler"].status == "broken"
    assert (found["sdpa-cudnn"].version, found["sdpa-cudnn"].status) == ("9.10.2", "works")
    missing = judged(
        more(SYSTEM, nvml_error="ModuleNotFoundError: No module named 'pynvml'"), ncu=Answer({"missing": True})
    )
    assert missing["nvml"].remedy == "python -m pip install nvidia-ml-py" and missing["ncu"].status == "missing"


# Real children, on packages that are not there


def test_f01_built_against_another_torch(site):
    site.torch("2.7.0+cu128", "12.8", [H200])
    site.nvml()
    file = site.path / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
    site.flash_attn_2("2.7.4.post1", extension=raises("ImportError", f"{file}: {UNDEFINED}"))
    found = probed("flash-attn-2")["flash-attn-2"]
    assert (found.status, found.kind, found.version) == ("broken", "abi", "2.7.4.post1")
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    for shown in ("flash-attn 2.7.4.post1", "torch 2.7.0+cu128", "CUDA 12.8", "C++11 ABI on", python):
        assert shown in found.cause
    assert "--no-build-isolation flash-attn" in found.remedy and "FLASH_ATTENTION_FORCE_BUILD=TRUE" in found.remedy
    assert found.detail == f"ImportError: site-packages/{file.name}: {UNDEFINED}"


def test_f01_on_a_machine_without_a_gpu_the_package_is_loaded_all_the_same(site):
    site.torch("2.7.0+cpu", None)
    site.flash_attn_2("2.7.4.post1", extension=raises("ImportError", f"x.so: {UNDEFINED}"))
    answer = probe("flash-attn-2")
    found = judged(NO_GPU, CPU_TORCH, flash_attn_2=answer)["flash-attn-2"]
    assert (found.status, found.kind) == ("broken", "abi")


ORDER = """
import sys
if "torch" not in sys.modules:
    raise ImportError("libc10.so: cannot open shared object file: No such file or directory")
def flash_attn_func(q, k, v, **options):
    return v
"""


def test_f01_libc10_is_missing_only_before_torch_is_imported(site):
    site.torch(cards=[H200])
    site.nvml()
    site.flash_attn_2(extension=ORDER)
    found = probed("flash-attn-2")["flash-attn-2"]
    assert (found.status, found.kind, found.remedy) == ("works", "", "")
    assert "libc10" in found.facts and "order, not a fault" in found.facts


def test_f01_libc10_is_missing_for_good(site):
    site.torch(cards=[H200])
    site.nvml()
    site.flash_attn_2(
        extension=raises("ImportError", "libc10.so: cannot open shared object file: No such file or directory")
    )
    found = probed("flash-attn-2")["flash-attn-2"]
    assert (found.status, found.kind) == ("broken", "abi") and "PyTorch was imported first" in found.cause


def test_f02_a_folder_that_looks_like_4_is_not_4(site):
    site.torch(cards=[H200])
    site.nvml()
    site.flash_attn_2("2.8.3", cute=raises("AttributeError", "module 'cutlass' has no attribute 'cute'"))
    found = probed("flash-attn-2", "flash-attn-4")
    assert (found["flash-attn-2"].status, found["flash-attn-2"].version) == ("works", "2.8.3")
    four = found["flash-attn-4"]
    assert (four.status, four.version, four.detail) == ("missing", "", "")
    assert four.remedy == "python -m pip install 'flash-attn-4[cu13]==4.0.0b36'"
    assert "--pre" in four.cause and "exact version" in four.cause and "writes over the folder" in four.cause


def test_what_a_package_lacks_is_nothing_to_mend_without_a_gpu(site):
    """4 finds no triton where PyTorch is a build for CPUs, and to install 4 again brings none."""
    site.torch("2.13.0+cpu", cuda=None)
    site.nvml(cards=[], error="NVMLError_LibraryNotFound")
    site.flash_attn_4(module=raises("ModuleNotFoundError", "No module named 'triton'"))
    four = probed("flash-attn-4")["flash-attn-4"]
    assert (four.status, four.version, four.remedy) == ("untried", "4.0.0b36", "")
    assert "needs the module triton" in four.cause and "needs an NVIDIA GPU that PyTorch can use" in four.cause


def test_4_alone_is_a_namespace_without_a_version(site):
    site.torch(cards=[H200])
    site.nvml()
    site.flash_attn_4()
    found = probed("flash-attn-2", "flash-attn-4")
    assert (found["flash-attn-4"].status, found["flash-attn-4"].version) == ("works", "4.0.0b36")
    assert found["flash-attn-2"].status == "missing"
    assert found["flash-attn-2"].remedy.endswith("--force-reinstall --no-deps flash-attn-4==4.0.0b36")  # 4 goes last


def test_4_that_was_written_over_by_2(site):
    site.torch(cards=[H200])
    site.nvml()
    site.flash_attn_4()
    site.flash_attn_2("2.8.3", cute=raises("ImportError", "cannot import name 'flash_attn_func'"))
    found = probed("flash-attn-4")["flash-attn-4"]
    assert (found.status, found.kind) == ("broken", "overwritten")
    assert "flash-attn 2.8.3 was installed after it" in found.cause and "--force-reinstall --no-deps" in found.remedy


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "no-kernel-image"),
        ("CUDA error: an illegal memory access was encountered", "illegal-access"),
        ("FlashAttention only supports Ampere GPUs or newer.", "capability"),
    ],
)
def test_a_launch_that_fails(site, message, kind):
    site.torch(cards=[H200])
    site.flash_attn_2(extension=launch_raises(message))
    found = judged(flash_attn_2=probe("flash-attn-2"))["flash-attn-2"]
    assert (found.status, found.kind, found.detail) == ("broken", kind, f"RuntimeError: {message}")
    assert found.remedy


def test_a_launch_that_answers_wrongly(site):
    site.torch(cards=[H200])
    site.flash_attn_2(extension="def flash_attn_func(q, k, v, **options):\n    return k\n")
    found = judged(flash_attn_2=probe("flash-attn-2"))["flash-attn-2"]
    assert (found.status, found.kind) == ("broken", "wrong-answer") and "0 in place of 63.5" in found.cause


@pytest.mark.parametrize(
    ("death", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11, Segmentation fault"),
        ("import os; os.abort()", "signal 6, Aborted"),
        ("import os; os._exit(0)", "exit code 0"),
    ],
)
def test_a_package_that_kills_whoever_imports_it(site, death, said):
    site.torch(cards=[H200])
    site.flash_attn_2("2.8.3", extension=death)
    answer = probe("flash-attn-2")
    found = judged(flash_attn_2=answer)["flash-attn-2"]
    assert (found.status, found.kind, found.version) == ("broken", "crash", "2.8.3")  # what it said before it died
    assert f"{said} while importing the package" in found.cause and found.remedy


def test_a_package_that_never_comes_back(site):
    site.torch(cards=[H200])
    site.flash_attn_2(extension="import time\nprint('on stdout')\ntime.sleep(600)\n")
    began = time.monotonic()
    answer = probe("flash-attn-2", limit_s=2.0)
    assert time.monotonic() - began < 20
    found = judged(flash_attn_2=answer)["flash-attn-2"]
    assert (found.status, found.kind) == ("broken", "hang")
    assert found.cause == "its process gave no answer within 2 s while importing the package"


@pytest.mark.skipif(REAL_DRIVER, reason="this machine has an NVIDIA driver")
def test_machines_as_their_driver_and_torch_show_them(site):
    site.torch("2.13.0+cpu", None)
    site.nvml(error="NVML Shared Library Not Found")
    assert probed()["gpu"].kind == "no-gpu"
    site.nvml(cards=["NVIDIA H200"])
    assert probed()["gpu"].kind == "cpu-wheel"
    too_old = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver"
    site.torch(init_error=too_old, warning=f"CUDA initialization: {too_old}")
    site.nvml(driver="550.54", cuda=12040)
    assert probed()["driver"].kind == "driver-old"


def test_cards_as_torch_launches_on_them(site):
    site.nvml(cards=["Tesla V100-SXM2-16GB"])
    site.torch(cards=[V100])
    found = probed()
    assert (found["gpu"].status, found["gpu"].kind) == ("limited", "capability") and "V100" in found["gpu"].facts
    site.torch(cards=[V100], launch_error="CUDA error: no kernel image is available for execution on the device")
    assert probed()["gpu"].kind == "no-kernel-image"


def tool(folder, name, script):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_ncu_that_may_not_count(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    refusal = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    tool(tmp_path / "bin", "ncu", f'[ "$1" = --version ] && echo "Version 2025.3.1.0 (build 1)" || echo "{refusal}"')
    found = judged(ncu=probe("ncu"))["ncu"]
    assert (found.status, found.kind, found.version) == ("broken", "counters", "2025.3.1.0")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.remedy and refusal in found.detail


@pytest.mark.parametrize(
    ("script", "status"), [(r"printf '\211PNG\r\n' > $picture", "works"), ("echo no display >&2; exit 5", "broken")]
)
def test_the_browser_is_judged_by_its_picture(site, tmp_path, monkeypatch, script, status):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    find = 'for a in "$@"; do case "$a" in --screenshot=*) picture=${a#--screenshot=};; esac; done'
    tool(tmp_path / "bin", "chromium", f'[ "$1" = --version ] && echo "Chromium 140.0.1" && exit\n{find}\n{script}')
    found = judged(browser=probe("browser"))["browser"]
    assert (found.status, found.version) == (status, "140.0.1")
    assert status == "works" or "no display" in found.detail


# Children that are no probes


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("print('Traceback'); print('{not json'); print('[1]')", "exit code 0"),
        ("import sys; sys.exit('no such thing')", "exit code 1: no such thing"),
        ("for _ in range(5000): print('{\"a\": 1}')", "talked without end"),
    ],
)
def test_nonsense_is_an_answer(code, end):
    answer = ask_command([sys.executable, "-c", code], 30.0, threading.Event())
    assert end in answer.end and answer.failed


def test_nobody_waits_any_more(tmp_path):
    stop, mark = threading.Event(), tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(ask_command([sys.executable, "-c", code], 600.0, stop)))
    waiting.start()
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.02)
    stop.set()
    waiting.join(20)
    assert answers[0].end == examination.ENDED
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_a_probe_ends_with_whoever_started_it(site):
    site.torch(cards=[H200])
    site.flash_attn_2(extension="import time\ntime.sleep(600)\n")
    command = [sys.executable, "-u", "-m", "attnlab.measure.probes", "flash-attn-2"]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    while b"load" not in child.stdout.readline():
        assert child.poll() is None
    child.stdin.close()
    assert child.wait(20) == 0
    child.stdout.close()


# The examination


def test_all_are_asked_a_few_at_a_time_and_the_first_before_the_others():
    lock, order, now, most = threading.Lock(), [], [0], [0]

    def ask(name, stop):
        with lock:
            order.append(name)
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return {"system": SYSTEM, "torch": TORCH}.get(name, Answer({"version": "1"}))

    asked = Examination(ask)
    assert not asked.look().running and asked.look().when == ""
    asked.start()
    asked.start()  # it goes on already
    look = asked.wait(20)
    assert sorted(order) == sorted(CHILDREN) and set(order[:2]) == {"system", "torch"}
    assert most[0] <= examination.SIDE_BY_SIDE
    assert not look.running and {f.status for f in look.findings} == {"works"} and look.usable
    assert look.summary == (
        "The lab measures on NVIDIA H200; flash is flash-attn-4 1, the newest FlashAttention, which works here."
    )
    asked.start()
    assert asked.look().running and asked.wait(20).version > look.version and len(order) == 2 * len(CHILDREN)


def test_what_cannot_be_tried_is_not_asked_and_a_fault_of_the_doctor_is_an_answer():
    asked_for = []

    def ask(name, stop):
        asked_for.append(name)
        if name == "torch":
            raise RuntimeError("a mistake")
        return NO_GPU

    asked = Examination(ask)
    asked.start()
    look = asked.wait(20)
    assert sorted(asked_for) == ["browser", "ncu", "system", "torch"]
    by_name = {f.name: f for f in look.findings}
    assert not look.usable and by_name["torch"].detail == "could not be asked: RuntimeError: a mistake"
    assert by_name["flash-attn-2"].cause == "PyTorch cannot be loaded"
    assert look.summary.startswith("The lab can measure nothing here: ")


def test_the_children_are_started_as_the_worker_is(monkeypatch):
    monkeypatch.setenv("ATTNLAB_WORKER", "srun --gres=gpu:1")
    assert examination.child_command("torch") == [
        "srun", "--gres=gpu:1", sys.executable, "-u", "-m", "attnlab.measure.probes", "torch"
    ]  # fmt: skip
    assert examination.child_command("browser")[0] == sys.executable


# The line


def status(name, state, provider=""):
    return PathStatus(name=name, state=state, provider=provider, reason="" if state == "ready" else "why")


PATHS_ON_H200 = (
    status("flash-attn-4", "broken", "flash-attn-4 4.0.0b36 · kernel"),
    status("flash-attn-3", "missing"),
    status("flash-attn-2", "ready", "flash-attn-2 2.8.3 · flash_fwd_kernel"),
    status("sdpa-flash", "ready", "PyTorch 2.13.0 · kernel"),
)


def test_the_line_of_a_gpu():
    worker = WorkerState(state="ready", device=H200_DEVICE, paths=PATHS_ON_H200)
    assert lab_line(worker) == (
        "The lab measures on NVIDIA H200; flash is flash-attn-2 2.8.3, because flash-attn-3 is not installed and "
        "flash-attn-4 4.0.0b36 does not work here."
    )
    own = replace(
        worker, paths=(status("flash-attn-4", "missing"), status("flash-attn-2", "missing"), PATHS_ON_H200[3])
    )
    assert lab_line(own) == (
        "The lab measures on NVIDIA H200; flash is PyTorch's own flash kernel, because flash-attn-4 and flash-attn-2 "
        "are not installed."
    )
    assert "no flash path runs here" in lab_line(replace(worker, paths=PATHS_ON_H200[:2]))


def test_the_line_without_a_gpu_and_without_a_worker():
    worker = WorkerState(state="ready", device=CPU_DEVICE, paths=(status("sdpa-flash", "ready"),))
    assert lab_line(worker) == (
        "The lab measures on the CPU, because no NVIDIA GPU is seen here; flash is PyTorch's CPU kernel, the same algorithm."
    )
    assert "PyTorch cannot use the NVIDIA GPU that is here" in lab_line(worker, gpu_seen=True)
    assert lab_line(WorkerState(state="starting")) == "The lab looks for a device."
    failed = WorkerState(state="failed", text="PyTorch cannot be loaded: no torch")
    assert lab_line(failed) == "The lab can measure nothing here: PyTorch cannot be loaded: no torch."


def test_the_doctor_says_the_same_line():
    def line(system, torch, **others):
        return doctor_line(Machine(system, torch), tuple(judged(system, torch, **others).values()))

    cpu = WorkerState(state="ready", device=CPU_DEVICE, paths=(status("sdpa-flash", "ready"),))
    assert line(NO_GPU, CPU_TORCH) == lab_line(cpu)
    error = Answer({"version": "4.0.0b36", "error": "ImportError: x", "stage": "load"})
    missing, two = Answer({"missing": True}), Answer({"version": "2.8.3"})
    on_gpu = WorkerState(state="ready", device=H200_DEVICE, paths=PATHS_ON_H200)
    assert line(SYSTEM, TORCH, flash_attn_4=error, flash_attn_3=missing, flash_attn_2=two) == lab_line(on_gpu)
    assert "because this PyTorch is built for CPUs alone, though an NVIDIA GPU is here;" in line(SYSTEM, CPU_TORCH)
    too_old = "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update"
    assert "because the NVIDIA driver is too old for this PyTorch;" in line(
        SYSTEM, more(TORCH, cards=[], error=too_old)
    )
    assert "because PyTorch cannot use the NVIDIA GPU that is here;" in line(
        SYSTEM, more(TORCH, cards=[], error="news")
    )
    assert line(NO_GPU, Answer({"error": "ModuleNotFoundError: No module named 'torch'"})) == (
        "The lab can measure nothing here: PyTorch is not installed."
    )


# Reports


def test_a_report_names_nobody(tmp_path, monkeypatch):
    home = tmp_path / "home" / "ada-lovelace"
    for name, value in {"HOME": str(home), "USER": "ada-lovelace", "LOGNAME": "ada-lovelace"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "engine-room-7")
    site = Site(home / "lab/.venv/lib/python3.12/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(site.path))
    site.torch(cards=[H200])
    site.flash_attn_2(
        extension=raises("ImportError", f"{site.path}/flash_attn_2_cuda.so: {UNDEFINED} on engine-room-7")
    )
    answers = {
        "system": SYSTEM,
        "torch": more(TORCH, error=f"RuntimeError: ada-lovelace may not read {home}/secrets/key:{home}"),
        "flash-attn-2": probe("flash-attn-2"),
        "ncu": Answer(end="ended with exit code 1: /home/someone/else/ncu: not found"),
    }
    asked = Examination(lambda name, stop: answers.get(name, Answer({"version": "1"})))
    asked.start()
    look = asked.wait(20)
    for text in (
        report.report(look),
        json.dumps(report.as_json(look), ensure_ascii=False),
        "\n".join(report.table(look)),
    ):
        assert "site-packages/flash_attn_2_cuda.so: undefined symbol" in text and "…/key" in text
        for private in ("ada", "lovelace", str(home), str(tmp_path), "engine-room", "/home", "someone", "secrets"):
            assert private not in text


@pytest.mark.parametrize(("prefix", "python"), [("/usr", "python"), (str(ROOT / ".venv"), ".venv/bin/python")])
def test_a_table_fits_and_its_commands_can_be_copied(prefix, python, monkeypatch):
    """Of the environment that `make` has made, or of another one."""
    monkeypatch.setattr(sys, "prefix", prefix)
    asked = Examination(lambda name, stop: {"system": SYSTEM, "torch": CPU_TORCH}.get(name, Answer({"missing": True})))
    asked.start()
    lines = report.table(asked.wait(20), columns=80)
    assert lines[0].startswith("The lab measures on the CPU, because")
    assert all(len(line) < 80 for line in lines if not line.startswith("    $ "))
    assert f"    $ {python} -m pip install --force-reinstall torch==2.13.0" in lines
    assert any(line.startswith("! PyTorch ") and line.endswith("works with limits") for line in lines)


def test_a_status_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="legal: works, limited"):
        Finding(name="torch", status="fine")


# The command


def doctor(*arguments, **env):
    command = [sys.executable, "-m", "attnlab", "doctor", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | env)


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def test_the_command_on_this_machine():
    done = doctor("--json")
    assert done.returncode == 0 and done.stderr == ""
    said = json.loads(done.stdout, parse_constant=refuse)
    assert said["usable"] and [check["name"] for check in said["checks"]] == list(WHAT)
    by_name = {check["name"]: check for check in said["checks"]}
    for name in ("torch", "sdpa-flash", "profiler"):
        assert by_name[name]["status"] == "works", by_name[name]
    assert said["summary"].startswith("The lab measures on ")


def test_the_command_where_torch_is_broken(site):
    site.torch(import_error="libtorch_cuda.so: undefined symbol: ncclCommRegister")
    done = doctor()
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("The lab can measure nothing here: PyTorch's libraries do not fit")
    assert (
        any(line.startswith("✗ PyTorch ") for line in lines)
        and "    $ env -u LD_LIBRARY_PATH python -m attnlab doctor" in lines
    )


@pytest.mark.parametrize("arguments", [("--bogus",), ("torch",), ("--json=1",)])
def test_bad_arguments_get_one_line(arguments):
    done = doctor(*arguments)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1


def test_ctrl_c_ends_the_children(site, tmp_path):
    mark = tmp_path / "pid"
    site.write(
        "torch/__init__.py", f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    command = subprocess.Popen([sys.executable, "-m", "attnlab", "doctor"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 30
    while not (mark.exists() and mark.read_text()) and time.monotonic() < limit:
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    assert "interrupted" in command.communicate(timeout=30)[1] and command.returncode == 130
    limit = time.monotonic() + 10
    while os.path.exists(f"/proc/{mark.read_text()}") and time.monotonic() < limit:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{mark.read_text()}")


def test_whoever_asks_imports_no_torch():
    code = "import sys, attnlab.cli, attnlab.ui.environment_rows; print({'torch', 'triton', 'flash_attn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()"
