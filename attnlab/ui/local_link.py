"""The way from what one of several devices computes to the live page, which measures it."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from attnlab.budget import Share
from attnlab.sweep import Sweep, lengths_up_to
from attnlab.ui import kept, link


def query(share: Share) -> str:
    """The address parameters of the live page for the local shape; empty where its form cannot hold it."""
    problem = share.problem
    if problem.batch > link.BATCH_MAX or problem.heads > link.HEADS_MAX:
        return ""
    values = link.form_values(Sweep(problem=problem, seqs=lengths_up_to(problem.seq_kv)))
    return urlencode({key: kept.as_text(value) for key, value in values.items() if value not in (None, "")})


def live_link(share: Share) -> None:
    """A button that opens the live page with the local shape, in a tab of its own: a form that is set is not overwritten."""
    address, heads = query(share), share.problem.heads
    st.link_button(
        f"Measure one device's share: {heads} head{'s' if heads > 1 else ''}",
        f"./?{address}",
        disabled=not address,
        help=None if address else f"The live page goes up to batch {link.BATCH_MAX} and {link.HEADS_MAX} heads.",
    )
