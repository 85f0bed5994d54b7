"""A run as CSV, Parquet, Markdown, HTML, PNG and SVG: each opened again and held to the run, number by number."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from math import log10

import looks
import pandas as pd
import pytest
from conftest import CHROMIUM_NAMES
from samples import F25, F25_DEVICE, H200, f25_point

from attnlab import browser, chart_parts, chart_style, export, figures, html_page, picture, tabular
from attnlab.cli import main
from attnlab.exchange import file_name, take, take_from
from attnlab.export import recorded_runs
from attnlab.installed import plotly_js
from attnlab.measurement import STATUSES
from attnlab.store import Store, process_start

EVIL = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
NUMBERS = [name for name, kind in tabular.KINDS.items() if kind.startswith(("int", "float"))]


@pytest.fixture(scope="module")
def shipped():
    return recorded_runs()[0]


# F25: a point without a number is never 0, NaN or Infinity


def test_oom_and_skipped_go_out_and_come_back_as_what_they_are(tmp_path):
    """Drawn with a gap and a mark, strict JSON with null, an empty cell beside the status, and the three states restored."""
    line, marks = (
        next(t for t in figures.latency(F25)["data"] if t["uid"] == f"standard-{n}") for n in ("line", "edge")
    )
    assert line["y"] == [0.12, None, None] and line["connectgaps"] is False
    assert marks["x"] == [65_536, 131_072] and marks["marker"]["symbol"][0] in ("x", "x-open")
    speedup = {t["uid"]: t for t in figures.speedup(F25)["data"]}["flash-line"]
    assert speedup["y"][1:] == [None, None]  # a ratio whose other side is missing
    drawn = [y for chart in (figures.latency, figures.memory) for t in chart(F25)["data"] for y in t["y"]]
    assert all(y is None or y > 0 for y in drawn)

    path = tmp_path / "run.json"
    export.write_run(F25, path)
    text = path.read_text(encoding="utf-8")
    json.loads(text, parse_constant=pytest.fail)
    points = {(m["path"], m["seq_kv"]): m for m in json.loads(text)["measurements"]}
    assert points["standard", 65_536]["device_ms"] is None and points["standard", 65_536]["status"] == "oom"
    cells = {(r["path"], r["seq_kv"]): r for r in csv.DictReader(io.StringIO(tabular.to_csv(F25)))}
    assert [cells["standard", seq]["device_ms"] for seq in ("1024", "65536", "131072")] == ["0.12", "", ""]
    assert [cells["standard", seq]["status"] for seq in ("1024", "65536", "131072")] == ["ok", "oom", "skipped"]

    store = Store(tmp_path / "other machine")
    assert [outcome.status for outcome in take_from(store, path)] == ["added"]
    assert store.load("r1") == F25
    assert tabular.to_csv(store.load("r1")) == tabular.to_csv(F25)


def test_every_status_survives_the_way_through_file_and_store(tmp_path):
    measured = {"ok": {"device_ms": 1.5}, "suspect": {"device_ms": 0.1}}
    sweep = replace(F25.sweep, seqs=tuple(1024 * n for n in range(1, len(STATUSES) + 1)), paths=("flash",))
    points = tuple(
        replace(
            f25_point("flash", seq, status, reason=f"why {status}", **measured.get(status, {})), problem=sweep.at(seq)
        )
        for seq, status in zip(sweep.seqs, STATUSES, strict=True)
    )
    run = replace(F25, sweep=sweep, measurements=points)
    store = Store(tmp_path)
    assert take(store, "x", export.run_to_text(run).encode()).status == "added"
    assert store.load("r1") == run and [m.status for m in store.load("r1").measurements] == list(STATUSES)


# Tables


def as_measured(run):
    return [{name: row[name] for name in NUMBERS} for row in tabular.rows(run)]


def test_csv_holds_every_number_of_every_recorded_run(shipped):
    for run in shipped.values():
        data = pd.read_csv(
            io.StringIO(tabular.to_csv(run)), keep_default_na=False, na_values={n: [""] for n in NUMBERS},
            float_precision="round_trip",
        )
        assert list(data.columns) == list(tabular.KINDS) and len(data) == len(run.measurements)
        assert list(data["status"]) == [m.status for m in run.measurements]
        for row, (_, found) in zip(as_measured(run), data.iterrows(), strict=True):
            assert {n: None if pd.isna(found[n]) else found[n] for n in NUMBERS} == row


def test_parquet_holds_the_same_with_types(shipped):
    for run in shipped.values():
        data = pd.read_parquet(io.BytesIO(tabular.to_parquet(run)), dtype_backend="pyarrow")
        assert data.replace({pd.NA: None}).to_dict("records") == tabular.rows(run)
    types = {name: str(kind) for name, kind in data.dtypes.items()}
    assert types["device_ms"] == "double[pyarrow]" and types["peak_bytes"] == "int64[pyarrow]"
    assert types["launch_bound"] == "bool[pyarrow]" and types["status"] == "string[pyarrow]"


def test_parquet_takes_a_count_beyond_64_bits():
    run = replace(F25, measurements=(f25_point("standard", 1024, "ok", device_ms=1.0, flops=2**90),))
    assert pd.read_parquet(io.BytesIO(tabular.to_parquet(run)))["flops"][0] == float(2**90)


def test_several_runs_are_one_table_and_an_empty_one_has_its_columns():
    both = (F25, replace(F25, id="b", measurements=F25.measurements[:2]))
    assert pd.read_parquet(io.BytesIO(tabular.to_parquet(*both)))["run"].value_counts().to_dict() == {"r1": 6, "b": 2}
    assert tabular.to_csv(*both).count("\n") == 9
    empty = replace(F25, measurements=())
    assert list(pd.read_parquet(io.BytesIO(tabular.to_parquet(empty))).columns) == list(tabular.KINDS)


def test_markdown_is_a_table_in_which_others_words_are_plain():
    evil = replace(F25, device=replace(H200, name="A | *B* <img src=x>\n# C"))
    text = tabular.to_markdown(evil, "[x](http://y) `z`")
    assert r"\[x\](http://y) \`z\`" in text and r"A \| \*B\* \<img src=x\> \# C" in text and "\n# C" not in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[0][:4] == ["sequence", "standard", "flash", "speed-up"] and set(rows[1]) == {"---:"}
    assert rows[2][0] == "1,024" and rows[3][1] == "out of memory (predicted)" and rows[4][1] == "skipped"
    assert {line.count("|") for line in text.splitlines() if line.startswith("| ")} == {7}


def test_markdown_of_a_look_is_its_table_as_it_stands():
    text = tabular.to_markdown(looks.exactness())
    assert "\n    path" in text and "PASS" in text


def test_markdown_and_html_of_a_comparison():
    pair = F25, replace(F25, id="b", device=replace(F25_DEVICE, driver="570 | <b>"))
    text = tabular.comparison_markdown(pair, ("one", "t|wo"))
    assert (
        r"B: t\|wo" in text
        and r"| driver | – | 570 \| \<b\> |" in text
        and "| flash | 65,536 | B | 5 | 5 | 1 |" in text
    )
    page = html_page.comparison_of(pair, ("one", EVIL), {}, theme="dark")
    assert "taken'</script>" not in page and "570 | &lt;b&gt;" in page


# HTML


def figures_in(page):
    return json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1], parse_constant=pytest.fail)


def test_html_holds_the_charts_number_by_number_in_the_colours_of_a_theme(shipped):
    run = shipped["h200"]
    for theme, page in (("light", html_page.page_of(run)), ("dark", html_page.page_of(run, theme="dark"))):
        found = {chart["id"]: chart for chart in figures_in(page)}
        assert list(found) == [f"chart-{name}" for name in html_page.charts(run)]
        line = next(t for t in found["chart-latency"]["data"] if t["uid"] == "flash-line")
        assert line["y"] == [run.get("flash", seq).device_ms for seq in run.sweep.seqs]
        assert line["line"]["color"] == chart_style.PATH_COLORS["flash"][theme == "dark"]
        assert "var(--attn" not in json.dumps(list(found.values()))
    assert "At sequence 16,384 flash is 6.0× faster" in page and "580.159.04" in page


def test_html_says_once_what_nobody_began():
    lost = [f25_point(path, 131_072, "unreached", reason="no worker starts") for path in ("standard", "flash")]
    run = replace(F25, state="failed", reason="no worker starts", measurements=(*F25.measurements[:2], *lost))
    points = html_page.page_of(run).partition("Every point</h2>")[2].partition("</div>")[0]
    assert points.count("no worker starts") == 1 and "2 points were not reached (no worker starts)" in points
    assert points.count("<tr>") == 3


def test_every_recorded_run_is_a_page(shipped):
    for run in shipped.values():
        assert html_page.page_of(run).endswith("</body></html>\n")


def test_nothing_in_a_run_is_markup():
    points = [replace(m, reason=EVIL, provider=EVIL, notes=(EVIL,)) for m in F25.measurements]
    run = replace(
        F25, id=EVIL, reason=EVIL, measurements=tuple(points), device=replace(F25_DEVICE, name=EVIL, torch=EVIL)
    )
    page = html_page.page_of(run, title=EVIL)
    assert "<img" not in page.split(plotly_js().read_text(encoding="utf-8"))[0] and page.count(EVIL) == 0
    assert unescape(re.search("<h1>(.*?)</h1>", page)[1]).startswith("At sequence 1,024")
    assert "&lt;img" in json.dumps(figures_in(page))


def test_json_in_a_script_cannot_end_it():
    text = html_page.script_json({EVIL: [EVIL, None, 1.5]})
    assert "<" not in text and json.loads(text) == {EVIL: [EVIL, None, 1.5]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        html_page.script_json(float("nan"))


@pytest.fixture
def opened(chromium_page, tmp_path):
    """Opens a document as a file on disk; every request that it makes is in `requests`."""
    requests = []
    chromium_page.on("request", lambda request: requests.append(request.url))

    def opened(page, charts):
        path = tmp_path / "run.html"
        path.write_text(page, encoding="utf-8")
        chromium_page.goto(path.as_uri())
        chromium_page.locator(".chart .plot-container").nth(charts - 1).wait_for()
        assert requests == [path.as_uri()], "the file asks for something beside itself"
        return chromium_page

    return opened


def test_html_opens_offline_and_is_interactive(opened, shipped):
    run = shipped["h200"]
    page = opened(html_page.page_of(run), 4)
    drawn = page.evaluate("document.getElementById('chart-latency').data.find(t => t.uid == 'standard-line').y")
    assert drawn == [m.device_ms if (m := run.get("standard", seq)).ok else None for seq in run.sweep.seqs]
    shown = "document.getElementById('chart-latency').data.find(t => t.uid == 'sdpa-cudnn-line').visible"
    assert page.evaluate(shown) == "legendonly"
    page.locator("#chart-latency .legendtoggle").nth(4).click()
    page.evaluate(f"async () => {{ while ({shown} !== true) await new Promise((done) => setTimeout(done, 20)); }}")
    rows = page.locator("table tr")
    assert rows.count() == 1 + len(run.measurements) and "oom" in rows.filter(has_text="32,768").first.inner_text()


def test_lines_and_labels_of_a_log_axis_stand_where_they_belong(opened, shipped):
    """Of a line the height is a number of bytes, of a label its logarithm: one taken for the other would be far off."""
    run = shipped["h200"]
    page = opened(html_page.page_of(run), 4)
    at = page.evaluate("""() => {
        const chart = document.getElementById('chart-memory'), box = (e) => e.getBoundingClientRect();
        const axis = chart._fullLayout.yaxis, top = box(chart).top + axis._offset;
        const said = [...chart.querySelectorAll('.annotation-text')].find((e) => e.textContent.includes('device memory'));
        return {line: box(chart.querySelector('.shapelayer path')).top - top, words: box(said).top - top,
                height: axis._length, range: axis.range};
    }""")
    low, high = at["range"]
    share = (high - log10(run.device.total_bytes)) / (high - low)
    assert at["line"] == pytest.approx(share * at["height"], abs=3)
    assert 0 <= at["words"] - at["line"] <= 20  # it hangs from the line


def test_a_hostile_run_opens_as_text(opened):
    points = [replace(m, reason=EVIL, provider=EVIL, notes=(EVIL,)) for m in F25.measurements]
    run = replace(F25, id=EVIL, measurements=tuple(points), device=replace(F25_DEVICE, name=EVIL))
    page = opened(html_page.page_of(run, title=EVIL), 4)
    assert page.title().startswith("At sequence 1,024") and page.locator("img").count() == 0
    assert EVIL in page.locator("table").inner_text()


# Pictures


@pytest.mark.browser
def test_pictures_of_every_chart(shipped):
    run = shipped["h200"]
    made = picture.pictures(html_page.charts_of(run, chart_parts.opens_with(run.sweep.paths, run.recorded)))
    assert sorted(made) == sorted(
        f"{n}.{k}" for n in ("latency", "memory", "speedup", "efficiency") for k in ("png", "svg")
    )
    for name, content in made.items():
        if name.endswith("png"):
            assert content.startswith(browser.PNG) and len(content) > 20_000
            assert struct.unpack(">II", content[16:24]) == (2 * html_page.WIDTH_PX, 2 * html_page.HEIGHT_PX)
        else:
            root = ET.fromstring(content)
            assert root.tag.endswith("}svg") and root.get("width") == str(html_page.WIDTH_PX)
            texts = "".join(root.itertext())
            assert "standard" in texts or name.startswith("speedup")
            assert "sdpa" not in texts and "recorded on NVIDIA H200" in texts
    assert "device memory: 140 GiB" in made["memory.svg"].decode()


def script(folder, text):
    folder.mkdir(exist_ok=True)
    path = folder / CHROMIUM_NAMES[0]
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return folder


CHART = {"latency": figures.latency(F25)}


def test_without_a_browser_that_is_said_at_once_and_the_rest_offered(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    making = picture.Making(CHART)
    assert making.done and making.files == {}
    assert "none of chromium, chromium-browser, google-chrome" in making.trouble and "HTML" in making.trouble
    with pytest.raises(picture.NoPicture, match="on the PATH"):
        picture.pictures(CHART)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('no display', file=sys.stderr); sys.exit(5)", "exit code 5: no display"),
        ("print('<html></html>')", "made no picture"),
        ("print('<pre id=\"pictures\"></pre>')", "made no picture"),
    ],
)
def test_a_browser_that_fails_is_quoted_in_one_line(monkeypatch, tmp_path, code, words):
    monkeypatch.setenv("PATH", str(script(tmp_path / "bin", code)))
    making = picture.Making(CHART)
    assert making.wait(30) and words in making.trouble and "\n" not in making.trouble and making.files == {}


def test_a_browser_that_hangs_is_ended_with_all_that_it_started(monkeypatch, tmp_path):
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    )
    monkeypatch.setenv("PATH", str(script(tmp_path / "bin", code)))
    monkeypatch.setattr(picture, "LIMIT_S", 1.0)
    making = picture.Making(CHART)
    assert not making.done and making.wait(30)
    assert "within 1 s and was ended" in making.trouble
    until = time.monotonic() + 5
    while (state := process_start(int(child.read_text()))) not in ("", "ended"):
        assert time.monotonic() < until, state
        time.sleep(0.02)


def test_no_more_browsers_than_a_machine_bears(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(script(tmp_path / "bin", "import time; time.sleep(600)")))
    monkeypatch.setattr(picture, "LIMIT_S", 1.5)
    first = [picture.Making(CHART) for _ in range(picture.AT_ONCE)]
    while picture._slots._value:
        assert not any(making.done for making in first)
    with pytest.raises(picture.NoPicture, match="drawing already; press again"):
        picture.pictures(CHART)
    assert all(making.wait(30) for making in first)
    assert picture._slots._value == picture.AT_ONCE, "and the places are free again"


# Files in and out


def test_names_of_files_hold_nothing_of_a_run_that_a_system_could_trip_over():
    evil = replace(F25, id="../../etc/passwd\0", device=replace(F25_DEVICE, name="../<b>|\n:"))
    assert re.fullmatch(r"attnlab-[a-z0-9-]+\.csv", file_name(evil, "csv"))
    assert file_name(F25, "csv") == "attnlab-nvidia-h200-2026-11-30-r1.csv"


def test_a_folder_is_taken_in_whole_and_again_without_a_change(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("a", "b"):
        export.write_run(replace(F25, id=name), folder / f"{name}.json")
    text = export.run_to_text(F25)
    (folder / "cut.json").write_text(text[: len(text) // 2])
    (folder / "pickle.json").write_bytes(b"\x80\x04cos\nsystem\n(S'touch /tmp/x'\ntR.")
    (folder / "notes.txt").write_text("no run")
    (folder / "folder.json").mkdir()
    store = Store(tmp_path / "home")
    first, again = (
        {o.name: o.status for o in take_from(store, folder, {"b"})},
        {o.name: o.status for o in take_from(store, folder)},
    )
    refused = dict.fromkeys(("cut.json", "pickle.json", "folder.json"), "refused")
    assert first == {"a.json": "added", "b.json": "known", **refused}
    assert again == {"a.json": "known", "b.json": "added", **refused}
    assert all("\n" not in o.text for o in take_from(store, folder))
    (nothing,) = take_from(store, tmp_path / "home")
    assert "no *.json" in nothing.why


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "not-there.json"])
def test_a_name_that_no_file_can_have_is_refused_in_one_line(tmp_path, name):
    (outcome,) = take_from(Store(tmp_path), tmp_path / name)
    assert outcome.status == "refused" and "\n" not in outcome.text and len(outcome.text) < 200


def test_the_command_line_writes_and_reads_them(tmp_path, capsys, private_home):
    files = {ending: tmp_path / f"run.{ending}" for ending in ("json", "csv", "parquet", "md", "html")}
    assert (
        main(["export", "h200", *(word for ending, path in files.items() for word in (f"--{ending}", str(path)))]) == 0
    )
    run = recorded_runs()[0]["h200"]
    assert export.run_from_text(files["json"].read_bytes()) == run
    assert files["csv"].read_text(encoding="utf-8") == tabular.to_csv(run)
    assert len(pd.read_parquet(files["parquet"])) == len(run.measurements)
    export.write_run(replace(run, id="abc-1"), files["json"])
    assert (
        main(["import", str(tmp_path)]) == 0
        and "'run.json' imported (recorded on NVIDIA H200" in capsys.readouterr().out
    )
    assert main(["import", str(files["json"]), str(files["csv"])]) == 1
    said = capsys.readouterr()
    assert "is here already" in said.out and "'run.csv' is refused: the file is not JSON" in said.err
    for which in ("abc-1", "abc", "last"):
        assert main(["export", which, "--json", str(files["json"])]) == 0
        assert export.run_from_text(files["json"].read_bytes()).id == "abc-1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "nothing", "--csv", "{}/x.csv"], "'nothing' is no run here; legal: "),
        (["export", "h200"], "nothing to write; legal: --json, --csv, --parquet, --md, --html, --pictures"),
        (["export", "h200", "--csv", "{}/no/x.csv"], "legal: a file in a folder that exists"),
        (["export", "h200", "--pictures", "{}/no"], "legal: a folder that exists"),
        (["export"], "RUN"),
        (["import"], "FILE_OR_FOLDER"),
    ],
)
def test_bad_arguments_get_one_line(tmp_path, capsys, words, said):
    with pytest.raises(SystemExit) as left:
        main([word.format(tmp_path) for word in words])
    error = capsys.readouterr().err
    assert left.value.code == 2 and said in error and error.count("\n") == 1


@pytest.mark.browser
def test_pictures_from_the_command_line(tmp_path, capsys, monkeypatch):
    assert main(["export", "h200-comparison-512", "--pictures", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert len(names) == 8 and all(name.startswith("attnlab-nvidia-h200-") for name in names)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["export", "h200", "--pictures", str(tmp_path), "--csv", str(tmp_path / "x.csv")]) == 1
    assert (tmp_path / "x.csv").exists() and "on the PATH" in capsys.readouterr().err


@pytest.mark.parametrize("created", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "0001-01-01"])
def test_a_date_that_no_time_zone_can_show_is_refused(tmp_path, created):
    """Taken in, it ended the list of runs for good."""
    data = json.loads((export.DATA / "h200.json").read_text())
    data["run"] |= {"id": "odd", "created": created}
    outcome = take(Store(tmp_path), "odd.json", json.dumps(data).encode())
    assert outcome.status == "refused" and "created" in outcome.text
