"""Findings as text: a table for terminals, strict JSON for programs, and a report for a bug tracker that names nobody."""

from __future__ import annotations

import platform
import re
import textwrap
from typing import Any

from attnlab import __version__
from attnlab.doctor.examination import Look
from attnlab.doctor.finding import Finding
from attnlab.doctor.scrub import scrub

INDENT = "    "
NARROWEST = 60
NO_NAME = re.compile(r"[a-z]+(?:[\s,;:]|$)")  # a first word that is neither "flash-attn" nor "cuDNN"


def table(look: Look, columns: int = 100) -> list[str]:
    """Mark, what, version and status of each, below it what there is, why not and what to do, within `columns` characters."""
    width = max(columns, NARROWEST) - 1
    names = max(len(finding.what) for finding in look.findings)
    versions = max(len(finding.version) for finding in look.findings)
    lines = [*textwrap.wrap(look.summary, width), ""]
    for finding in look.findings:
        head = f"{finding.mark} {finding.what:<{names}}   {finding.version:<{versions}}   {finding.words}"
        lines.append(head)
        for text in words(finding):
            lines += textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT, break_long_words=False)
        lines += [f"{INDENT}$ {finding.remedy}"] if finding.remedy else []  # one line, to be copied
    return lines


def sentences(finding: Finding) -> list[str]:
    """Its facts and its cause, those that there are. What begins with a name keeps the name as it is written."""
    return [
        f"{text[0].upper() if NO_NAME.match(text) else text[0]}{text[1:]}."
        for text in (finding.facts, finding.cause)
        if text
    ]


def said(finding: Finding) -> str:
    """The error itself, "" where there is none."""
    return f"It said: {finding.detail}" if finding.detail else ""


def words(finding: Finding) -> list[str]:
    return [*sentences(finding), *filter(None, [said(finding)])]


def as_json(look: Look) -> dict[str, Any]:
    """Strict JSON values only, and no path or name: every text has been scrubbed."""
    return {
        "summary": look.summary,
        "usable": look.usable,
        "checked": look.when,
        "attnlab": __version__,
        "python": look.python,
        "packages": dict(look.packages),
        "checks": [finding.to_json() for finding in look.findings],
    }


def report(look: Look) -> str:
    """Markdown, to be pasted into a bug tracker. No user name, no name of the machine, no path."""
    lines = [f"AttnLab {__version__}, {look.when[:10]}", "", look.summary, ""]
    lines += ["| | what | version | status | |", "|---|---|---|---|---|"]
    lines += [row(finding) for finding in look.findings]
    lines += ["", f"{platform.system()} {platform.machine()}, Python {look.python}"]
    lines += ["; ".join(f"{name} {version}" for name, version in sorted(look.packages.items()))]
    return "\n".join(scrub(line) for line in lines).rstrip() + "\n"


def row(finding: Finding) -> str:
    cells = [finding.mark, finding.what, finding.version, finding.words, " ".join(words(finding))]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
