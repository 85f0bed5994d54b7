"""The runs page through AppTest: the list, its filters, one run, several, names, deletion, imports, files; in a browser."""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from conftest import components, figure_of
from samples import F25, H200
from streamlit.testing.v1 import AppTest
from test_store import finished

from attnlab import export, picture
from attnlab.lab import Lab
from attnlab.store import Store
from attnlab.ui import runs_table, shell

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 60.0
EVIL = "<img src=x onerror=alert(1)> *bold* [a](http://b) :red[c]"


def slower(run, name, factor, **more):
    """The run with every time so many times as long, known within 1 %."""
    points = tuple(
        replace(m, device_ms=t, device_ms_low=0.99 * t, device_ms_high=1.01 * t, samples=20, launch_bound=False)
        if m.ok and (t := m.device_ms * factor)
        else m
        for m in run.measurements
    )
    return replace(run, id=name, measurements=points, **more)


@pytest.fixture
def store(private_home):
    """Runs that were measured here and imported ones, before the page opens."""
    kept = Store(private_home)
    for n in range(3):
        finished(kept, f"r{n}")
    kept.add(slower(F25, "old", 1.0, created="2026-11-01T10:00:00Z", device=replace(F25.device, driver="570")))
    kept.add(slower(F25, "new", 1.5, created="2026-11-02T10:00:00Z", device=replace(F25.device, driver="580")))
    yield kept
    kept.close()


@pytest.fixture
def open_page(store, private_home, monkeypatch):
    labs = []

    def open_page(recorded=None, **link):
        monkeypatch.setenv("FAKE_WORKER", "{}")
        command = [sys.executable, "-u", str(ROOT / "tests/fake_worker.py")]
        labs.append(Lab(Store(private_home), worker_command=command))
        monkeypatch.setattr(shell, "lab", lambda: labs[0])
        monkeypatch.setattr(shell, "recordings", lambda: (recorded or {}, []))
        runs_table.shipped.clear()
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        monkeypatch.setattr(shell, "PAGES", (("pages/runs.py", "Runs"),))  # no other page submits a run of its own
        app.query_params.update(link)
        return ran(ran(app))  # sentences come with the second run

    yield open_page
    for lab in labs:
        lab.close()
    runs_table.shipped.clear()


def ran(page):
    page.run()
    assert not page.exception
    return page


def told_to(page):
    """What the table in the browser is told."""
    (table,) = [c for c in page.get("bidi_component") if c.key == runs_table.KEY]
    return json.loads(table.proto.json)[0]


def listed(page):
    """The rows of the table, by the names of its columns."""
    table = told_to(page)
    names = ["id", "title", *(name for name, _, _ in table["columns"])]
    return pd.DataFrame([dict(zip(names, row, strict=True)) for row in table["rows"]], columns=names)


def say(page, /, **wanted):
    """What the table says when a visitor has ticked, sorted or turned a page."""
    table = told_to(page)
    chosen, sort, down, at = (wanted.get(name, table[name]) for name in ("chosen", "sort", "down", "page"))
    page.session_state[runs_table.KEY] = {"said": [table["answers"] + 1, chosen, sort, down, at]}
    return ran(page)


def choose(page, *wanted):
    """Ticks the rows whose name or device is wanted, and no other."""
    rows = listed(page)
    return say(page, chosen=list(rows[rows["name"].isin(wanted) | rows["device"].isin(wanted)]["id"]))


def charts(page):
    return {c.key: figure_of(c) for c in components(page) if c.key != runs_table.KEY}


def sentence(page):
    return unescape(re.sub("<[^>]*>", "", page.get("html")[0].value)).replace("\u2060", "")


def words(page):
    return "\n".join(m.value for m in page.main.markdown).replace("\\", "")


def named(store):
    store.label("old", "before", "")
    store.label("new", "after", "")


def test_the_list_says_of_every_run_what_it_was_and_what_it_shows(open_page):
    page = open_page({"h200": replace(F25, id="shipped", device=H200)})
    table = listed(page)
    assert sentence(page).count("6 runs from 2 devices: choose one to look at it, two to 6 to compare them.") == 1
    assert Counter(table["from"]) == {"measured here": 3, "ships with AttnLab": 1, "imported": 2}
    row = table[table["name"] == "h200"].iloc[0]
    assert row["device"] == "NVIDIA H200" and row["status"] == "4 ok, 1 out of memory, 1 skipped"
    assert row["problem"] == "batch 1, heads 8 over 2, dim 64, bfloat16, causal" and row["seqs"] == "1,024 to 131,072"
    assert all(table["sentence"].str.endswith(".")), "every run that has ended says what it shows"
    assert list(table["date"]) == sorted(table["date"], reverse=True)
    assert "flash-attn 2.8.3" in table[table["device"] == "a CPU"].iloc[0]["versions"]


FIRST_PAINT = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from streamlit.testing.v1 import AppTest
from attnlab.lab import Lab
from attnlab.store import Store
from attnlab.ui import shell
lab = Lab(Store(), worker_command=[sys.executable, "-u", {str(ROOT / "tests/fake_worker.py")!r}])
shell.lab, shell.PAGES = lambda: lab, (("pages/runs.py", "Runs"),)
page = AppTest.from_file({str(ROOT / "app.py")!r}, default_timeout=60)
page.run()
print(*(part.key for part in page.get("bidi_component")), *sorted({{"pandas", "pyarrow"}} & set(sys.modules)))
lab.close()
"""


def test_the_table_comes_with_the_first_paint_and_waits_for_no_pandas(private_home):
    said = subprocess.run([sys.executable, "-c", FIRST_PAINT], capture_output=True, text=True, timeout=120)
    assert said.stdout.splitlines() == ["runs_table arrival"], said.stderr


def test_search_and_filters_cut_the_list_down(open_page, store):
    store.label("old", "The one", "noisy neighbour")
    page = open_page()
    page.text_input("runs_search").set_value("NOISY")
    assert list(listed(ran(page))["name"]) == ["The one"]
    page.text_input("runs_search").set_value("")
    page.multiselect("runs_device").set_value(["a CPU"])
    assert len(listed(ran(page))) == 3
    page.multiselect("runs_device").set_value([])
    page.multiselect("runs_shape").set_value(["batch 1, heads 8 over 2, dim 64, bfloat16, causal"])
    assert len(listed(ran(page))) == 2 and "5 runs from 2 devices, 2 of them shown" in sentence(page)
    page.multiselect("runs_path").set_value(["flash"])
    assert len(listed(ran(page))) == 2


def test_one_run_is_shown_named_and_noted(open_page, store):
    named(store)
    page = choose(open_page(), "before")
    assert sentence(page).startswith("At sequence 1,024 flash is") and "recorded on NVIDIA H200" in sentence(page)
    assert set(charts(page)) == {"runs_latency", "runs_memory", "runs_speedup"}
    page.text_input("name of old").set_value("Renamed  twice")
    page.text_input("note of old").set_value(EVIL)
    ran(page)
    (entry,) = [e for e in store.entries() if e.run.id == "old"]
    assert (entry.name, entry.note) == ("Renamed twice", EVIL)
    assert "Renamed twice" in list(listed(ran(page))["name"])
    assert page.text_input("name of old").value == "Renamed  twice", "the choice stays while its row changes"


def test_the_paths_that_are_chosen_are_drawn(open_page):
    shipped = export.recorded_runs()[0]["h200"]
    page = choose(open_page({"h200": shipped}), "h200")

    def drawn():
        traces = charts(page)["runs_latency"]["data"]
        return {t["meta"] for t in traces if t.get("meta") and t["visible"] is True}

    assert drawn() == {"standard", "flash"}
    page.multiselect(f"paths of {shipped.id}").set_value(["flash", "sdpa-cudnn"])
    ran(page)
    assert drawn() == {"flash", "sdpa-cudnn"}
    page.multiselect(f"paths of {shipped.id}").set_value([])
    assert not charts(ran(page)) and page.button("runs_draw").disabled


def test_a_run_that_ships_can_be_looked_at_and_not_changed(open_page):
    page = choose(open_page({"h200": replace(F25, id="shipped")}), "h200")
    assert page.text_input("name of shipped").disabled and page.text_input("note of shipped").disabled
    assert page.button("runs_delete").disabled


def test_deleted_runs_are_gone_at_once_and_come_back(open_page, store):
    page = choose(open_page(), "a CPU")
    assert page.button("runs_delete").label == "Delete 3" and page.button("runs_undo").disabled
    page.button("runs_delete").click()
    assert list(listed(ran(page))["device"]) == ["NVIDIA H200"] * 2 and store.deleted_count() == 3
    assert page.button("runs_delete").disabled and page.button("runs_undo").label == "Undo delete (3)"
    page.button("runs_undo").click()
    assert len(listed(ran(page))) == 5 and store.deleted_count() == 0


def test_two_runs_are_compared_with_what_differs_first(open_page, store):
    named(store)
    page = choose(open_page(), "before", "after")
    assert "50 % slower with driver 580 than with driver 570 at" in sentence(page)
    said = words(page)
    assert said.index("| driver | 570 | 580 |") < said.index("flash is 50 % slower")
    assert "**A** before" in said and "**B** after" in said, "the older one is what the newer is held against"
    assert set(charts(page)) == {"runs_c_latency", "runs_c_ratio"}
    ratios = page.dataframe[0].value
    assert list(ratios["ratio"]) == pytest.approx([1.5] * 4) and set(ratios["verdict"]) == {"50 % slower"}
    (line,) = [t for t in charts(page)["runs_c_ratio"]["data"] if t["uid"] == "B flash-line"]
    assert line["y"] == pytest.approx([1.5] * 3)


def test_two_runs_are_compared_by_memory_where_that_is_chosen(open_page, store):
    named(store)
    more = tuple(replace(m, peak_bytes=m.peak_bytes and 3 * m.peak_bytes) for m in store.load("old").measurements)
    store.add(replace(store.load("old"), id="more", created="2026-11-03T10:00:00Z", measurements=more))
    store.label("more", "more", "")
    page = choose(open_page(), "before", "more")
    assert "none differs beyond the intervals" in sentence(page)
    page.segmented_control("compare").set_value("memory")
    page = ran(page)
    assert "needs 3.0× more memory in B than in A at" in sentence(page) and "needs 3.0× more" in words(page)
    assert set(charts(page)) == {"runs_c_memory", "runs_c_memory-ratio"}
    ratios = page.dataframe[0].value
    assert set(ratios["ratio"]) == {3.0} and "low" not in ratios and set(ratios["verdict"]) == {"3.0× more"}
    assert r"| A\_ms | ms |" in page.code[0].value and r"| A\_bytes | bytes |" in page.code[0].value, "files hold both"


def test_a_link_says_what_runs_are_compared_by(open_page, store):
    page = open_page(run=["old", "new"], compare="memory")
    assert set(charts(page)) == {"runs_c_memory", "runs_c_memory-ratio"} and "of memory" in sentence(page)
    assert set(charts(open_page(run=["old", "new"], compare="<b>"))) == {"runs_c_latency", "runs_c_ratio"}


def test_more_runs_than_letters_are_said_and_not_drawn(open_page, store):
    for n in range(8):
        store.add(slower(F25, f"x{n}", 1.0))
    page = choose(open_page(), "NVIDIA H200")
    assert "10 are chosen, compared are 6" in words(page)


def upload(page, *files):
    page.file_uploader("runs_files").set_value([(name, content, "application/json") for name, content in files])
    [button] = [b for b in page.button if b.label == "Import"]
    button.click()
    return ran(page)


def told(page):
    return [e.value.replace("\\", "") for e in (*page.success, *page.error)]


def test_files_come_in_once_and_what_is_no_run_is_refused_in_one_line(open_page, store):
    good = export.run_to_text(replace(F25, id="fresh")).encode()
    page = upload(open_page(), ("good.json", good), ("cut.json", good[:300]), (f"{EVIL}.json", b"[]"))
    added, cut, evil = told(page)
    assert added == "'good.json' imported (recorded on NVIDIA H200, 2026-11-30)"
    assert cut.startswith("'cut.json' is refused: the file is not JSON") and "\n" not in cut
    assert "is refused: this is no run; legal" in evil
    assert all(sign not in page.error[1].value.replace(f"\\{sign}", "") for sign in "<[*"), "a name is no markup"
    assert store.load("fresh") == replace(F25, id="fresh") and len(listed(page)) == 6
    page = upload(page, ("again.json", good))
    assert told(page) == ["'again.json' is here already, nothing is changed (recorded on NVIDIA H200, 2026-11-30)"]
    assert len(listed(page)) == 6 and told(ran(page)) == []


def test_a_name_and_a_note_come_in_with_a_file_and_are_text(open_page, store):
    named = replace(F25, id="fresh", name=EVIL, note=f"{EVIL}\nsecond line")
    page = upload(open_page(), ("named.json", export.run_to_text(named).encode()))
    assert store.load("fresh") == named and EVIL in list(listed(page)["name"])
    page = choose(page, EVIL)
    assert page.text_input("name of fresh").value == EVIL
    assert plain(choose(page, EVIL, "NVIDIA H200")), "beside its letter"
    long = {**export.run_to_json(named), "run": {**export.run_to_json(named)["run"], "id": "long", "name": "x" * 101}}
    page = upload(page, ("long.json", json.dumps(long).encode()))
    assert "is refused: the name is" in told(page)[0] and "legal: text of at most 100 characters" in told(page)[0]


def plain(page):
    """Whether no sign of EVIL stands in any markdown as markup."""
    texts = [m.value for m in page.main.markdown]
    assert any("onerror" in text for text in texts)
    return not any(re.search(r"(?<!\\)(<img|\*bold|\[a|\[c|:red)", text) for text in texts)


def test_a_hostile_run_is_text_wherever_it_is_shown(open_page, store):
    evil = replace(F25, id=EVIL, reason=EVIL, device=replace(H200, name=EVIL, torch=EVIL, driver=EVIL))
    page = upload(open_page(), ("evil.json", export.run_to_text(evil).encode()))
    store.label(EVIL, EVIL, EVIL)
    page = choose(ran(page), EVIL)
    assert plain(page)
    assert "<img" not in page.get("html")[0].value
    assert len(charts(page)) == 3 and "<img" not in json.dumps(charts(page))
    page = choose(page, EVIL, "NVIDIA H200")
    assert plain(page)
    assert len(charts(page)) == 2 and "<img" not in json.dumps(charts(page))


def test_every_format_has_its_button_and_markdown_is_there_to_copy(open_page, store):
    named(store)
    page = choose(open_page(), "before")
    assert [b.label for b in page.download_button] == ["CSV", "Parquet", "JSON", "HTML", "Markdown"]
    assert page.code[0].value.startswith("**before**") and "| sequence | standard | flash |" in page.code[0].value


def test_pictures_are_drawn_beside_the_page(open_page, store, monkeypatch):
    monkeypatch.setattr(picture, "pictures", lambda figures, theme: {f"{name}.png": b"x" for name in figures})
    monkeypatch.setattr(picture.browser, "find", lambda: "a browser")
    named(store)
    page = choose(open_page(), "before")
    page.button("runs_draw").click()
    limit = time.monotonic() + LIMIT_S
    while not [b for b in ran(page).download_button if b.label == "efficiency.png"]:
        assert time.monotonic() < limit
    labels = [b.label for b in page.download_button if b.label.endswith("png")]
    assert labels == ["latency.png", "memory.png", "speedup.png", "efficiency.png"]
    assert not [b for b in choose(page, "after").download_button if b.label.endswith("png")], "they were of another run"


def test_without_a_browser_the_page_says_so_and_offers_the_rest(open_page, store, monkeypatch):
    named(store)
    page = choose(open_page(), "before")
    monkeypatch.setattr(picture.browser, "find", lambda: None)
    page.button("runs_draw").click()
    (warning,) = ran(page).warning
    assert "none of chromium" in warning.value and "all other formats are there without it" in warning.value


def test_the_choice_stays_with_its_run_when_others_come(open_page, store):
    named(store)
    page = choose(open_page(), "before")
    store.add(slower(F25, "newest", 2.0, created="2026-12-01T10:00:00Z"))
    assert len(listed(ran(page))) == 6
    assert page.text_input("name of old").value == "before"


def test_sentences_that_the_list_lacks_come_a_few_at_a_time(open_page, monkeypatch):
    monkeypatch.setattr(runs_table, "DESCRIBE_S", -1.0)  # no time at all
    page = open_page()
    assert "sentences are still being written" in words(page) and set(listed(page)["sentence"]) == {""}
    monkeypatch.setattr(runs_table, "DESCRIBE_S", 5.0)
    assert all(listed(ran(page))["sentence"]) and "still being written" not in words(page)


def test_a_long_list_is_shown_a_page_at_a_time(open_page, monkeypatch):
    monkeypatch.setattr(runs_table, "PAGE_ROWS", 2)
    page = open_page()
    assert len(listed(page)) == 2 and told_to(page)["place"] == "1 to 2 of 5"
    first = list(listed(page)["id"])
    page = say(page, page=3)
    assert told_to(page)["place"] == "5 to 5 of 5" and page.query_params["page"] == "3"
    assert not set(listed(page)["id"]) & set(first)
    assert told_to(say(page, page=9))["page"] == 3, "there are but three"
    page.text_input("runs_search").set_value("CPU")
    page = ran(page)
    assert told_to(page)["place"] == "1 to 2 of 3" and "page" not in page.query_params, "another list begins at its top"


def test_what_is_chosen_stays_chosen_on_another_page(open_page, store, monkeypatch):
    monkeypatch.setattr(runs_table, "PAGE_ROWS", 2)
    named(store)
    page = say(open_page(), chosen=["old", "new"], page=3)
    assert told_to(page)["chosen"] == ["new", "old"] and "**A** before" in words(page)
    page.text_input("runs_search").set_value("after")
    assert told_to(ran(page))["chosen"] == ["new"], "nothing is chosen that nobody sees"
    assert not charts(say(page, chosen=[])) and "run" not in page.query_params


def test_the_table_is_sorted_by_any_column(open_page, store):
    named(store)
    page = say(open_page(), sort="name", down=False)
    assert list(listed(page)["name"]) == ["after", "before", "", "", ""]
    assert list(listed(say(page, sort="name", down=True))["name"]) == ["before", "after", "", "", ""]
    page = say(page, sort="seqs", down=False)
    assert list(listed(page)["seqs"])[-1] == "1,024 to 131,072"
    assert list(listed(say(page, sort="date", down=False))["date"]) == sorted(listed(page)["date"])


def test_a_link_opens_the_runs_that_it_names(open_page, store, monkeypatch):
    monkeypatch.setattr(runs_table, "PAGE_ROWS", 2)
    named(store)
    page = open_page(run=["old", "new", EVIL], page="2")
    assert told_to(page)["page"] == 2 and told_to(page)["chosen"] == ["new", "old"]
    assert "**A** before" in words(page) and "1 of the link is not here" in words(page)
    assert page.query_params["run"] == ["new", "old"], "what is not here is in no address"
    page.button("runs_delete").click()
    assert told_to(ran(page))["chosen"] == [] and "2 of the link" not in words(page) and store.deleted_count() == 2
    assert told_to(open_page(page="x' OR 1"))["page"] == 1


@pytest.mark.parametrize(
    "said",
    [None, {}, [2], [2, "old", "date", True, 1], [2, ["old"], "no column", True, 1], [2, ["old"], "date", True, 0],
     [2, [["old"]], "date", True, 1], [2, ["\ud800"], "date", True, 1], [2, ["x"] * 1_001, "date", True, 1],
     [True, ["old"], "date", True, 1], [0, ["old"], "date", True, 1]],
)  # fmt: skip
def test_what_no_table_says_is_not_heard(open_page, said):
    page = open_page()
    page.session_state[runs_table.KEY] = {"said": said}
    assert told_to(ran(page))["chosen"] == []


def test_a_visitor_of_a_public_server_changes_nothing(open_page, store, monkeypatch):
    """Not even by pressing what is disabled."""
    monkeypatch.setenv("ATTNLAB_PUBLIC", "1")
    shell._public.clear()
    named(store)
    page = choose(open_page(), "before")
    assert page.button("runs_delete").disabled and page.text_input("name of old").disabled
    [submit] = [b for b in page.button if b.label == "Import"]
    for widget in (
        page.button("runs_delete"),
        page.text_input("name of old"),
        page.file_uploader("runs_files"),
        submit,
    ):
        widget.proto.disabled = False  # a client of one's own could say so too
    page.button("runs_delete").click()
    page.text_input("name of old").set_value("mine")
    page = upload(page, ("x.json", export.run_to_text(replace(F25, id="fresh")).encode()))
    assert len(store.entries()) == 5 and store.deleted_count() == 0 and store.load("fresh") is None
    assert {entry.name for entry in store.entries()} == {"", "before", "after"}
    shell._public.clear()


def test_a_run_is_found_chosen_and_saved_in_a_browser(start_app, store, chromium_page, tmp_path):
    named(store)
    chromium_page.goto(start_app("app.py") + "/runs")
    rows = chromium_page.locator(".attnlab-runs tbody tr")
    rows.nth(4).wait_for()
    chromium_page.get_by_placeholder("Search names").fill("before")
    chromium_page.keyboard.press("Enter")
    chromium_page.get_by_text("1 of them shown").wait_for()
    rows.nth(1).wait_for(state="detached")
    chromium_page.get_by_role("checkbox", name="Choose before").check()
    chromium_page.locator(".attnlab-chart[data-updates]").nth(2).wait_for()
    for ending, label in (("json", "JSON"), ("parquet", "Parquet"), ("html", "HTML")):
        with chromium_page.expect_download() as waiting:
            chromium_page.get_by_role("button", name=label, exact=True).click()
        assert waiting.value.suggested_filename == f"attnlab-nvidia-h200-2026-11-01-old.{ending}"
        waiting.value.save_as(tmp_path / f"run.{ending}")
    assert export.run_from_text((tmp_path / "run.json").read_bytes()) == store.load("old")
    assert len(pd.read_parquet(tmp_path / "run.parquet")) == 6
    assert (tmp_path / "run.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_table_is_worked_with_the_keyboard_in_a_browser(start_app, store, chromium_page):
    named(store)
    chromium_page.goto(start_app("app.py") + "/runs?page=1")
    box = chromium_page.locator(".attnlab-runs input[data-run]")
    box.nth(4).wait_for()
    assert box.evaluate_all("all => all.filter((one) => one.tabIndex === 0).length") == 1, "one tab stop for all rows"
    box.nth(0).focus()
    chromium_page.keyboard.press("ArrowDown")
    chromium_page.keyboard.press("Space")
    chromium_page.keyboard.press("ArrowDown")
    chromium_page.keyboard.press("Space")
    assert [box.nth(row).is_checked() for row in range(3)] == [False, True, True], "ticked before the page has answered"
    chromium_page.get_by_text("What differs", exact=True).wait_for()
    assert chromium_page.evaluate("document.activeElement.dataset.run") == box.nth(2).get_attribute("data-run")
    assert len(re.findall("run=", chromium_page.url)) == 2
    chromium_page.get_by_role("button", name="Choose none").click()
    chromium_page.get_by_text("What differs", exact=True).wait_for(state="detached")
    chromium_page.get_by_role("button", name="Name", exact=True).press("Enter")
    chromium_page.locator("th[data-column=name][aria-sort=ascending]").wait_for()
    assert chromium_page.locator(".attnlab-runs tbody tr").first.locator("td").nth(2).text_content() == "after"


def test_a_row_that_stays_is_the_same_element(start_app, store, chromium_page):
    """A key that is held down on it while the table changes is not lost, nor is a text that is being selected."""
    named(store)
    chromium_page.goto(start_app("app.py") + "/runs")
    box = chromium_page.locator(".attnlab-runs input[data-run]")
    box.nth(4).wait_for()
    rows = [row.element_handle() for row in box.all()]
    store.label("old", "Another name", "")
    box.nth(3).check()
    chromium_page.locator(".attnlab-runs td", has_text="Another name").wait_for()
    assert all(row.evaluate("(box) => box.isConnected") for row in rows)
    chromium_page.get_by_role("button", name="Name", exact=True).click()
    chromium_page.locator("th[data-column=name][aria-sort=ascending]").wait_for()
    names = chromium_page.locator(".attnlab-runs tbody td:nth-child(3)").all_inner_texts()
    said = [name for name in names if name != "–"]
    assert said == sorted(said, key=str.casefold) and "Another name" in said and len(names) == len(rows)


FIRST_TOP = """
const look = () => {
    const top = document.querySelector(".attnlab-runs tbody td")?.getBoundingClientRect().top;
    if (top) window.firstTop = [top, document.querySelectorAll("[data-testid=stMultiSelect]").length];
    else requestAnimationFrame(look);
};
look();
"""


def test_the_table_stands_where_it_stays_before_what_is_above_it_is_there(start_app, store, chromium_page):
    chromium_page.add_init_script(FIRST_TOP)
    chromium_page.goto(start_app("app.py") + "/runs")
    chromium_page.locator("[data-testid=stMultiSelect]").nth(2).wait_for()
    first, filters = chromium_page.evaluate("firstTop")
    chromium_page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    seen = "document.querySelector('.attnlab-runs tbody td')?.getBoundingClientRect().top"  # 0 while it is drawn anew
    top = chromium_page.wait_for_function(seen).json_value()
    assert filters == 0 and first == pytest.approx(top, abs=1)
