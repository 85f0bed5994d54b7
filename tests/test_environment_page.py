"""The environment page through AppTest: checks that go on, a machine on which all is wrong, one without a GPU, two tabs."""

import threading
import time
from html import unescape
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from attnlab.doctor.examination import Examination
from attnlab.doctor.finding import Answer
from attnlab.doctor.judgement import CHILDREN, WHAT
from attnlab.limits import Limits
from attnlab.ui import environment_rows, shell

ROOT = Path(__file__).resolve().parents[1]
SYSTEM = Answer({"python": "cp312", "packages": {"flash-attn": "2.7.4.post1", "torch": "2.13.0+cu130"}, "driver": "580.95.05",
                 "driver_cuda": 13000, "nvml_cards": ["NVIDIA H200"], "distribution": "debian"})  # fmt: skip
CARD = {"name": "NVIDIA H200", "capability": "9.0", "total_bytes": 140 << 30, "l2_bytes": 60 << 20}
TORCH = Answer({"torch": "2.13.0+cu130", "cuda": "13.0", "cxx11_abi": True, "arch_list": ["sm_90"], "cards": [CARD]})
BROKEN = Answer(
    {
        "version": "2.7.4.post1",
        "stage": "load",
        "error": "ImportError: /home/ada/site-packages/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E",
    }
)
ON_A_GPU = {"system": SYSTEM, "torch": TORCH, "flash-attn-2": BROKEN, "flash-attn-3": Answer({"missing": True}),
            "flash-attn-4": Answer({"missing": True}), "browser": Answer({"missing": True})}  # fmt: skip
WITHOUT = {"system": Answer({"python": "cp312", "nvml_error": "NVMLError: x"}), "torch": Answer({"torch": "2.13.0+cpu"}),
           "flash-attn-2": Answer({"missing": True})}  # fmt: skip


@pytest.fixture
def open_page(monkeypatch):
    """open_page(answers, gate) → the page; a child answers when the gate is open."""

    def open_page(answers, gate=None):
        asked = []

        def ask(name, stop):
            asked.append(name)
            assert gate is None or gate.wait(60)
            return answers.get(name, Answer({"version": "1", "name": "x"}))

        made = Examination(ask)
        made.start()
        monkeypatch.setattr(environment_rows, "examination", lambda: made)
        page = another(made)
        page.asked = asked
        return page

    def another(made):
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.session_state["_routed"] = True
        app.switch_page("pages/environment.py")
        app.run()
        assert not app.exception
        app.made = made
        return app

    open_page.another = another
    return open_page


def ended(page):
    page.made.wait(60)
    page.run()
    assert not page.exception
    return page


def summary(page):
    return unescape(page.get("html")[0].value).replace("\u2060", "")


def words(page):
    return "\n".join(element.value for element in page.main.markdown).replace("\\", "")


def test_the_page_is_there_before_the_checks_are_done(open_page):
    gate = threading.Event()
    began = time.monotonic()
    page = open_page(ON_A_GPU, gate)
    assert time.monotonic() - began < 30  # nothing waits for a child
    assert words(page).count(":blue-badge[… checking]") == len(WHAT)
    assert f"Checking: 0 of {len(WHAT)} done" in words(page)
    assert page.button("e_again").disabled
    gate.set()
    ended(page)
    assert "checking" not in words(page) and not page.button("e_again").disabled


def test_a_visitor_of_a_public_server_starts_no_checks(open_page, monkeypatch):
    monkeypatch.setattr(shell, "public", Limits)
    assert ended(open_page(ON_A_GPU)).button("e_again").disabled


def test_what_is_broken_has_its_cause_and_a_command(open_page):
    page = ended(open_page(ON_A_GPU))
    said = words(page)
    assert (
        "flash is PyTorch's own flash kernel, because flash-attn-4 and flash-attn-3 are not installed and "
        in summary(page)
    )
    assert "flash-attn-2 2.7.4.post1 does not work here" in summary(page)
    for what in WHAT.values():
        assert f"**{what}**" in said
    assert ":red-badge[✗ does not work]" in said and "built against another PyTorch or C++ ABI" in said
    assert "It said: ImportError: site-packages/flash_attn_2_cuda.so" in said
    commands = [code.value for code in page.code]
    assert any("--no-build-isolation flash-attn" in command for command in commands)
    assert "sudo apt-get install chromium" in commands


def test_the_report_can_be_copied_and_names_nobody(open_page):
    page = ended(open_page(ON_A_GPU))
    text = page.code[-1].value
    assert "| ✗ | flash-attn 2 | 2.7.4.post1 | does not work |" in text
    assert summary(page).partition('0">')[2].partition("</p>")[0] in text
    assert "ada" not in text and "/home" not in text


def test_a_machine_without_a_gpu_needs_nothing(open_page):
    page = ended(open_page(WITHOUT))
    assert "The lab measures on the CPU, because no NVIDIA GPU is seen here" in summary(page)
    assert ":red-badge" not in words(page) and ":orange-badge" not in words(page)


def test_another_tab_asks_nothing_again_and_the_button_does(open_page):
    page = ended(open_page(ON_A_GPU))
    asked = len(page.asked)
    assert asked == len(CHILDREN)
    ended(open_page.another(page.made))
    assert len(page.asked) == asked
    page.button("e_again").click().run()
    ended(page)
    assert len(page.asked) == 2 * asked and "checking" not in words(page)


def test_a_first_visitor_comes_by_the_address(start_app, chromium_page, tmp_path):
    """Past app.py, to a server that has shown nothing yet; real checks, by real children."""
    url = start_app(ROOT / "app.py")
    chromium_page.goto(f"{url}/environment")
    chromium_page.get_by_text("Checked ").first.wait_for()
    assert chromium_page.get_by_role("link", name="Environment").count() == 1
    assert chromium_page.get_by_text("The lab measures on ").first.is_visible()
    chromium_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = chromium_page.get_by_test_id("stCode").last
    code.scroll_into_view_if_needed()
    code.hover()
    code.get_by_role("button").first.click()
    copied = chromium_page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("AttnLab ") and "| ✓ | PyTorch |" in copied
    log = (tmp_path / "server.log").read_text()
    assert "ScriptRunContext" not in log and "Traceback" not in log
