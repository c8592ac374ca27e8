"""The theme is loaded without a grant, and its texts can be read by day and by night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tavern_host import Host

pytestmark = pytest.mark.tavern(plugins=["../warm_theme"])

CSS = (Path(__file__).parents[1] / "warm_theme" / "web" / "theme.css").read_text()
THEMES = dict(
    zip(
        ("day", "night"),
        (dict(re.findall(r"(--[\w-]+): (#\w{6});", part)) for part in CSS.split("[data-theme")),
        strict=True,
    )
)
TEXTS = [
    (ink, ground) for ink in ("--text", "--text-soft") for ground in ("--canvas", "--panel", "--raised", "--sunken")
]
PAIRS = [*TEXTS, ("--accent", "--panel"), ("--accent", "--accent-soft"), ("--on-accent", "--accent")]


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2.2 has it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_texts_have_enough_contrast() -> None:
    for name, theme in THEMES.items():
        for ink, ground in PAIRS:
            light, dark = sorted((luminance(theme[ink]), luminance(theme[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ink, ground)


def test_day_and_night_have_the_same_colours() -> None:
    assert THEMES["day"].keys() == THEMES["night"].keys()


@pytest.mark.tavern(trust=[])
async def test_it_asks_for_its_style_sheet_alone(host: Host) -> None:
    asked = {permission.name.partition(":")[0] for permission in host.plugin("warm-theme").permissions}
    assert asked == {"code", "hook", "ui.frontend"}
