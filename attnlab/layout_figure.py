"""Where a head's tokens lie in memory, in either layout, drawn in the style of attnlab.chart_style."""

from __future__ import annotations

from attnlab.chart_style import AXIS, TEXT_PX, Figure, color, frame
from attnlab.problem import AttentionProblem

MADE_FOR_PX = 1050
TOKENS_SHOWN = 8


def strides(problem: AttentionProblem) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides of Q in elements: as it lies (batch, seq, heads, dim); transposed, a view (batch, heads, seq, dim); and of
    that made contiguous."""
    p = problem
    lies = (p.seq_q * p.heads * p.head_dim, p.heads * p.head_dim, p.head_dim, 1)
    view = (lies[0], lies[2], lies[1], lies[3])
    return lies, view, (p.heads * p.seq_q * p.head_dim, p.seq_q * p.head_dim, p.head_dim, 1)


def addresses(problem: AttentionProblem) -> Figure:
    """Where the first tokens of head 0 lie, in bytes from the start of Q: apart in one layout, side by side in the other.
    The gaps are the other heads' parts of the same tokens."""
    lies, _, copied = strides(problem)
    width = problem.head_dim * problem.dtype_bytes
    shown = min(TOKENS_SHOWN, problem.seq_q)
    p = problem
    rows = {
        f"(batch, seq, heads, dim)<br>{(p.batch, p.seq_q, p.heads, p.head_dim)}": (lies[1], "standard"),
        f"(batch, heads, seq, dim)<br>{(p.batch, p.heads, p.seq_q, p.head_dim)}": (copied[2], "flash"),
    }
    data = []
    for name, (stride, accent) in rows.items():
        starts = [token * stride * problem.dtype_bytes for token in range(shown)]
        data.append(
            {"type": "bar", "orientation": "h", "uid": name, "base": starts, "x": [width] * shown, "y": [name] * shown,
             "marker": {"color": color(accent), "line": {"color": "var(--attn-page)", "width": 1}}, "showlegend": False,
             "hoverinfo": "text",
             "hovertext": [f"token {token} of head 0<br>byte {start:,} to {start + width - 1:,}"
                           for token, start in enumerate(starts)]}
        )  # fmt: skip
    layout = frame(f"Head 0 of Q: its first {shown} tokens", f"{width:,} bytes each, and where they lie")
    most = ((shown - 1) * lies[1] + problem.head_dim) * problem.dtype_bytes
    layout |= {
        "meta": {"made_for_px": MADE_FOR_PX},
        "uirevision": f"{problem.heads} {problem.head_dim}",
        "barmode": "overlay",
        "bargap": 0.35,
        "xaxis": AXIS | {"range": [0, most * 1.02],
                         "title": {"text": "bytes from the start of Q", "font": {"size": TEXT_PX}}},
        "yaxis": {"categoryarray": list(reversed(rows)), "categoryorder": "array", "automargin": True,
                  "tickfont": {"size": TEXT_PX}, "fixedrange": True},
    }  # fmt: skip
    return {"data": data, "layout": layout}
