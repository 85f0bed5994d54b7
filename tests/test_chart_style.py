"""The colours of charts: told apart, readable on both pages, and those of the page itself."""

import json
from pathlib import Path

import pytest

from attnlab.chart_style import CHROME, PATH_COLORS, PATH_SYMBOLS
from attnlab.paths import PATHS


def test_every_path_has_its_own_colour_with_contrast():
    assert set(PATHS) <= set(PATH_COLORS) == set(PATH_SYMBOLS)
    for theme, background in enumerate(CHROME["page"]):
        colors = [pair[theme] for pair in PATH_COLORS.values()]
        assert len(set(colors)) == len(colors)
        assert min(contrast(color, background) for color in colors) >= 3.0
        assert contrast(CHROME["text"][theme], background) >= 7.0
        assert contrast(CHROME["quiet"][theme], background) >= 4.5


def contrast(a, b):
    """WCAG 2 contrast ratio of two "#rrggbb" colours, 1 to 21."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_theme_of_the_page_is_the_theme_of_the_charts():
    tomllib = pytest.importorskip("tomllib", reason="reads TOML with Python 3.11 or newer")
    config = tomllib.loads((Path(__file__).parents[1] / ".streamlit" / "config.toml").read_text())
    for theme, name in enumerate(("light", "dark")):
        page = config["theme"][name]
        assert page["chartCategoricalColors"] == [pair[theme] for pair in PATH_COLORS.values()][:10]
        assert page["backgroundColor"] == CHROME["page"][theme]
        assert page["textColor"] == CHROME["text"][theme]
    assert config["browser"]["gatherUsageStats"] is False
    assert config["server"]["address"] == "127.0.0.1"
    assert "http" not in json.dumps(config), "nothing may be fetched from outside"
