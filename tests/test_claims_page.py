"""The claims page through AppTest: nothing measured, measured by a fake worker, recorded runs."""

from html import unescape
from pathlib import Path

import pytest
from apptest import until
from streamlit.testing.v1 import AppTest

from attnlab import claims
from attnlab.export import recorded_runs

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def open_page(page_lab):
    def open_page(recorded=(), **fake):
        lab = page_lab(dict(recorded), **fake)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.run()
        app.switch_page("pages/claims.py").run()
        return until(app, lambda app: lab.snapshot().worker.device is not None, said).run()

    open_page.labs = page_lab.labs
    return open_page


def said(page):
    return "\n".join(
        [unescape(page.get("html")[0].value).replace("\u2060", ""), *(m.value for m in page.main.markdown)]
    )


def test_a_first_visitor_sees_every_claim_with_its_setting_and_what_cannot_be_tested(open_page):
    page = open_page()
    words = said(page)
    for claim in claims.CLAIMS:
        assert f"“{claim.text}”" in words.replace("\\", "") and claim.setting in words.replace("\\", "")
    assert "it speaks of A100; this is NVIDIA H200" in words.replace("\\", "")
    assert "are not measured yet" in words
    assert page.button("c_fa2-rate").disabled and not page.button("c_at-512").disabled


def test_one_claim_is_tested_and_judged(open_page):
    page = open_page()
    page.button("c_at-512").click()
    until(page, lambda page: "× at 512" in said(page) and "measuring" not in said(page), said)
    words = said(page)
    assert ":green-badge[✓ holds]" in words or ":red-badge[✗ does not hold]" in words


def test_all_that_can_be_tested_are(open_page):
    page = open_page()
    page.button("c_all").click()
    until(page, lambda page: "not measured yet" not in said(page) and "measuring" not in said(page), said)
    assert "cannot be tested here" in said(page)


def test_a_fault_of_the_worker_is_said_in_words(open_page):
    page = open_page(die_at=["flash", 512])
    page.button("c_at-512").click()
    until(page, lambda page: "flash at 512" in said(page), said)


def test_recorded_runs_are_judged_and_marked(open_page):
    page = open_page(recorded_runs()[0].items(), kind="cpu")
    words = said(page)
    assert "(recorded on NVIDIA H200, " in words and ":violet-badge[recorded on NVIDIA H200, " in words
    assert ":red-badge[✗ does not hold]" in words and ":green-badge[✓ holds]" in words
    assert page.button("c_all").disabled


def test_whoever_comes_before_the_device_is_known_sees_recorded_runs_once_it_is_a_cpu(page_lab):
    lab = page_lab(dict(recorded_runs()[0].items()), kind="cpu", start_s=3600)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert app.switch_page("pages/claims.py").run().selectbox("c_show").value == "Measure on this machine"
    lab.close()
    page_lab.labs.clear()
    page_lab(dict(recorded_runs()[0].items()), kind="cpu")
    until(app, lambda page: "(recorded on NVIDIA H200, " in said(page), said)
    assert app.selectbox("c_show_recorded").value == "NVIDIA H200"
