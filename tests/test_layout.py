"""Imports point one way, streamlit and torch stay in their rooms. Read from the source, nothing is imported."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(p for p in [ROOT / "app.py", *ROOT.glob("pages/**/*.py"), *ROOT.glob("attnlab/**/*.py")] if p.exists())

# Facts and arithmetic: they import nothing of the project but one another.
FACTS = {
    "installed",
    "cgroup",
    "remedy",
    "checked",
    "problem",
    "limits",
    "measurement",
    "finding",
    "edges",
    "verdicts",
    "claims",
    "device",
    "run",
    "cost",
    "hardware",
    "nvml",
    "roofline",
    "estimate",
    "textbook",
    "memory_plan",
    "budget",
    "interval",
    "samples",
    "growth",
    "ladder",
    "protocol",
    "paths",
    "sweep",
    "presets",
    "planner",
    "command_line",
    "arguments",
    "summary",
    "history",
    "comparison",
    "browser",
    "units",
    "trip",
    "tiling",
    "online_softmax",
    "code_steps",
    "talk",
    "rehearsal",
    "stage_words",
}
MIDDLE = {
    "lab",
    "board",
    "supervisor",
    "store",
    "database",
    "keeper",
    "process",
    "doctor",
    "devices",
    "chart_style",
    "chart_parts",
    "figures",
    "exactness_figure",
    "roofline_figure",
    "memory_figure",
    "calculate",
    "trip_figures",
    "layout_figure",
    "export",
    "tabular",
    "exchange",
    "picture",
    "html_page",
    "comparison_figure",
    "stage_figure",
    "softmax_figure",
    "table",
    "cli",
}


def imports(path):
    """(module, whether at the top level) of every import in the file, as absolute dotted names."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; imports here are absolute"
            found += [(f"{node.module}.{alias.name}", id(node) in top) for alias in node.names]
    return found


def uses(path, package):
    return any(name == package or name.startswith(f"{package}.") for name, _ in imports(path))


def room(path):
    """The first name below attnlab ("ui", "lab", …), or "pages" for what stands outside."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "attnlab" else "pages"


def rooms_used(path):
    return {name.split(".")[1] for name, _ in imports(path) if name.startswith("attnlab.")}


def relative(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_streamlit_stays_in_pages_and_ui(path):
    if room(path) not in ("pages", "ui"):
        assert not uses(path, "streamlit")


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_torch_stays_with_the_worker(path):
    measures = room(path) in ("paths", "measure", "worker") and relative(path) != "attnlab/paths/__init__.py"
    if not measures:
        assert not uses(path, "torch")


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_imports_point_one_way(path):
    here, used = room(path), rooms_used(path)
    if here == "pages":
        assert used <= FACTS | {"ui", "figures", "roofline_figure", "memory_figure", "exactness_figure"}
    elif relative(path) == "attnlab/paths/__init__.py" or (here in FACTS and here != "paths"):
        assert used <= FACTS | {"__version__"}
    elif here in MIDDLE:
        assert used <= FACTS | MIDDLE | {"__version__"}
    elif here == "ui":
        assert not used & {"worker", "measure"}
    elif here in ("paths", "measure", "worker"):
        assert used <= FACTS | {"measure"}
    else:
        assert (here, used) in (("__main__", {"cli"}), ("__init__", set())), "a room that no rule knows"


def test_only_the_worker_reaches_what_imports_torch():
    """Nothing but the worker imports attnlab.measure or a path's own module, not even inside a function."""
    for path in SOURCES:
        if room(path) in ("paths", "measure", "worker"):
            continue
        torch_rooms = ("attnlab.measure.", "attnlab.paths.", "attnlab.worker")
        deep = {name for name, _ in imports(path) if f"{name}.".startswith(torch_rooms)} - {"attnlab.paths"}
        allowed = {f"attnlab.paths.{name}" for name in ("PATHS", "PathInfo", "FLASH_CANDIDATES")}
        assert deep <= allowed, relative(path)


RUNS_WHAT_IT_READS = {"pickle", "marshal", "shelve", "dill", "joblib", "yaml"}


def runs_input(path):
    """Names of what would run data that came from outside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    modules = {name.split(".")[0] for name, _ in imports(path)}
    return (called & {"eval", "exec", "compile", "__import__"}) | (modules & RUNS_WHAT_IT_READS)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_from_outside_is_run(path):
    assert runs_input(path) == set()


def test_the_rule_sees_what_it_must(tmp_path):
    """A rule that reads nothing would pass for ever."""
    sample = tmp_path / "sample.py"
    sample.write_text("def f():\n    import torch.nn as nn\n    from streamlit import cache_data\n")
    assert uses(sample, "torch") and uses(sample, "streamlit") and not uses(sample, "tor")
    sample.write_text("import pickle\nfrom yaml import load\nimport re\nre.compile(eval('1'))\n")
    assert runs_input(sample) == {"pickle", "yaml", "eval"}
    assert len(SOURCES) > 15
    assert any(uses(path, "torch") for path in SOURCES)
