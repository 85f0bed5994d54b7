"""The environment page's parts: the server's one examination, a row for each finding, the report."""

from __future__ import annotations

import streamlit as st

from attnlab.doctor.examination import Examination, Look
from attnlab.doctor.finding import Finding
from attnlab.doctor.report import report, said, sentences
from attnlab.ui.text import escape, local

COLOURS = {
    "works": "green",
    "limited": "orange",
    "broken": "red",
    "missing": "gray",
    "untried": "gray",
    "checking": "blue",
}
WIDTHS = (2.0, 1.6, 1.9, 10.0)
REPORT_PX = 330


@st.cache_resource(show_spinner=False)
def examination() -> Examination:
    """The one of this server, whatever the number of browser tabs. It is started by whoever looks first."""
    made = Examination()
    made.start()
    return made


def when(look: Look) -> str:
    """How far it is, or how old, in one line of markdown."""
    if look.running:
        done = sum(finding.status != "checking" for finding in look.findings)
        return f"Checking: {done} of {len(look.findings)} done. Each check runs in a process of its own."
    return f"Checked {local(look.when)}, each in a process of its own."


def rows(look: Look) -> None:
    with st.container(gap="xsmall"):
        for finding in look.findings:
            row(finding)


def row(finding: Finding) -> None:
    """What it is, its version and status, what there is or why not, and the command that helps."""
    with st.container(border=True):
        name, version, status, words = st.columns(WIDTHS, vertical_alignment="center")
        name.markdown(f"**{escape(finding.what)}**")
        version.markdown(f":small[{escape(finding.version) or '–'}]")
        status.markdown(f":{COLOURS[finding.status]}-badge[{finding.mark} {finding.words}]")
        text = words
        if finding.remedy:
            text, remedy = words.columns(2, vertical_alignment="center")
            remedy.code(finding.remedy, language="bash", wrap_lines=True)
        lines = [escape(sentence) for sentence in sentences(finding)]
        lines += [f":gray[{escape(said(finding))}]"] if finding.detail else []
        text.markdown("  \n".join(f":small[{line}]" for line in lines) or "–")


def copyable(look: Look) -> None:
    """The report, with a button that copies it and one that saves it."""
    text = report(look)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("Report for a bug tracker", width="stretch", anchor=False)
        st.download_button(
            "Save report",
            text,
            "attnlab-environment.md",
            "text/markdown",
            key="e_save",
            disabled=look.running,
            on_click="ignore",
        )
    st.caption("It names no user, no machine and no path. The button in its corner copies it.")
    st.code(text, language=None, wrap_lines=True, height=REPORT_PX)
