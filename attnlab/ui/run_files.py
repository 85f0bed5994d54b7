"""The buttons that write what is chosen as files. A file is made when its button is pressed; pictures are made by a browser
in the background, and the page goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import streamlit as st

from attnlab import html_page, tabular
from attnlab.chart_style import Figure
from attnlab.exchange import file_name, take
from attnlab.export import MAX_TEXT_BYTES, run_to_text
from attnlab.picture import Making
from attnlab.run import Run
from attnlab.store import Store
from attnlab.ui.parts import part
from attnlab.ui.text import escape

EVERY_S = 0.5
TYPES = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
    "html": "text/html",
    "md": "text/markdown",
    "png": "image/png",
    "svg": "image/svg+xml",
}
DARK = "Dark charts in files"


def of_run(run: Run, name: str, paths: Sequence[str], drawn: Mapping[str, Figure]) -> None:
    """All formats of one run, `paths` of it `drawn`; `name` is what people call it. Tables and HTML hold every path."""
    theme = "dark" if st.toggle(DARK, key="runs_dark") else "light"
    files = {
        "csv": ("CSV", lambda: tabular.to_csv(run)),
        "parquet": ("Parquet", lambda: tabular.to_parquet(run)),
        "json": ("JSON", lambda: run_to_text(run)),
        "html": ("HTML", lambda: html_page.page_of(run, theme=theme, title=name)),
        "md": ("Markdown", lambda: tabular.to_markdown(run, name)),
    }
    _files(file_name(run, ""), files)
    _pictures(f"{run.id} {theme} {paths}", file_name(run, ""), drawn, theme)
    _markdown(tabular.to_markdown(run, name))


def of_comparison(runs: Sequence[Run], names: Sequence[str], paths: Sequence[str], drawn: Mapping[str, Figure]) -> None:
    """The formats of several runs side by side, `paths` of them `drawn`. JSON is a run's own, so there is none of several."""
    theme = "dark" if st.toggle(DARK, key="runs_dark") else "light"
    files = {
        "csv": ("CSV", lambda: tabular.to_csv(*runs)),
        "parquet": ("Parquet", lambda: tabular.to_parquet(*runs)),
        "html": ("HTML", lambda: html_page.comparison_of(runs, names, drawn, theme=theme)),
        "md": ("Markdown", lambda: tabular.comparison_markdown(runs, names)),
    }
    stem = f"attnlab-comparison-of-{len(runs)}."
    _files(stem, files)
    _pictures(f"{[run.id for run in runs]} {theme} {paths}", stem, drawn, theme)
    _markdown(tabular.comparison_markdown(runs, names))


def take_in(store: Store, shipped: Collection[str], *, closed: bool) -> None:
    """The form that runs come in by. `shipped`: ids of those that come with AttnLab. `closed`: nothing may."""
    files = st.file_uploader(
        "Runs as JSON, from this or another machine", type=["json"], accept_multiple_files=True,
        max_upload_size=MAX_TEXT_BYTES >> 20, key="runs_files", disabled=closed,
        help="Nothing can be imported on a public server." if closed else None,
    )  # fmt: skip
    if st.form_submit_button("Import", type="primary", disabled=closed) and files:
        st.session_state["runs_outcomes"] = [take(store, file.name, file.getvalue(), shipped) for file in files]
        st.rerun()


def outcomes() -> None:
    """A line for each file that has just come in, or why it has not."""
    for outcome in st.session_state.pop("runs_outcomes", ()):
        (st.error if outcome.status == "refused" else st.success)(escape(outcome.text))


def _files(stem: str, files: Mapping[str, tuple[str, Callable[[], str | bytes]]]) -> None:
    with st.container(horizontal=True, gap="small"):
        for ending, (label, make) in files.items():
            st.download_button(
                label, make, f"{stem}{ending}", TYPES[ending], key=f"runs_{ending}", on_click="ignore", width="content"
            )


def _markdown(text: str) -> None:
    with st.expander("Markdown to copy"):
        st.code(text, language="markdown", height=220)


def _pictures(key: str, stem: str, drawn: Mapping[str, Figure], theme: str) -> None:
    """PNG and SVG: a button that starts them, then one for each picture, or why there are none."""
    state = st.session_state
    held, making = state.get("runs_pictures", ("", None))
    if held != key:
        making = None  # of something else

    @part(run_every=EVERY_S if making and not making.done else None)
    def pictures() -> None:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            if st.button("PNG and SVG", key="runs_draw", disabled=not drawn or bool(making and not making.done)):
                state["runs_pictures"] = (key, Making(drawn, theme))
                st.rerun()
            if making is None:
                st.markdown(":small[:gray[of each chart, drawn by a browser of this machine]]" if drawn else
                            ":small[:gray[nothing is drawn of it]]", width="content")  # fmt: skip
            elif not making.done:
                st.markdown(":blue-badge[drawing]", width="content")
            elif making.trouble:
                st.warning(making.trouble)
            else:
                for name, content in making.files.items():
                    ending = name.rpartition(".")[2]
                    st.download_button(name, content, f"{stem.removesuffix('.')}-{name}", TYPES[ending],
                                       key=f"runs_{name}", on_click="ignore")  # fmt: skip
        if state.get("runs_drawing") and (making is None or making.done):
            state["runs_drawing"] = False
            st.rerun()  # the page then stops to look

    state["runs_drawing"] = making is not None and not making.done
    pictures()
