"""Draws where the outlets and parts of the page are, as they are in a browser: `docs/pictures/studio-places.svg`.

Run it as `PYTHONPATH=tests python tests/real/studio/picture_of_places.py` after something was moved on the page.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from catalogue_bench import GRANTED, VIEWS, add, clear, make_catalogue_project, open_view, view_of
from playwright.async_api import async_playwright
from studio_bench import show

from tavern_host import Host
from tavern_host.contracts.ui import COMPONENTS, OUTLETS
from tavern_host.testing.http import served
from tavern_studio.testing import FLAGS, chromium

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "studio-places.svg"
WIDTH, HEIGHT = 1280, 800
FRAMES = {
    "editor": ("The editor", 20, 30, 0.6),
    "home": ("The home page", 20, 550, 0.42),
    "settings": ("The settings", 580, 550, 0.17),
    "dialog": ("A dialogue", 580, 740, 0.17),
    "assistant": ("The assistant in the editor", 820, 740, 0.17),
}
"""Where each view stands in the picture: its title, its left upper corner, its scale."""
LETTERS = dict(zip(COMPONENTS, "ABCDEFGHIJKLMNOP", strict=False))
NUMBERS = {name: str(number) for number, name in enumerate(OUTLETS, 1)}

Box = tuple[float, float, float, float]
_BOXES = """
(isOfMark) => [...document.querySelectorAll("[data-row]")].map((mark) => {
  const { x, y, width, height } = (isOfMark ? mark : mark.nextElementSibling ?? mark).getBoundingClientRect();
  return [mark.dataset.row, [x, y, width, height]];
})
"""


async def boxes() -> dict[str, dict[str, Box]]:
    """Return where outlets and parts are in each view that shows them, by row of the catalogue."""
    found: dict[str, dict[str, Box]] = {view: {} for view in VIEWS}
    with tempfile.TemporaryDirectory() as root:
        make_catalogue_project(Path(root) / "inn")
        async with Host(Path(root) / "inn") as host, served(host) as site, async_playwright() as playwright:
            await host.grant(GRANTED)
            browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            context = await browser.new_context(locale="en", viewport={"width": WIDTH, "height": HEIGHT})
            studio = await show(context, site)
            await studio.page.wait_for_function("() => window.catalogue !== undefined")
            for kind, names in (("outlet", OUTLETS), ("wrap", COMPONENTS)):
                rows = [f"{kind} {name}" for name in names]
                for view in VIEWS:
                    await open_view(studio, view)
                    await add(studio, rows)
                    await studio.page.wait_for_selector("[data-row]")
                    await studio.page.wait_for_timeout(500)
                    for row, box in await studio.page.evaluate(_BOXES, kind == "outlet"):
                        if view_of(row) == view or (view in ("home", "editor") and view_of(row) != "assistant"):
                            found[view].setdefault(row, box)
                    await clear(studio)
            await browser.close()
    return found


def drawing(found: Mapping[str, Mapping[str, Box]]) -> Iterator[str]:
    """Yield the lines of the picture."""
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1120 910" font-family="sans-serif" font-size="12">'
    yield '<rect width="1120" height="910" fill="#ffffff"/>'
    for view, (title, left, top, scale) in FRAMES.items():
        yield f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>'
        size = f'width="{WIDTH * scale:.0f}" height="{HEIGHT * scale:.0f}"'
        yield f'<rect x="{left}" y="{top}" {size} fill="#f5f6f8" stroke="#8a93a0"/>'
        taken: list[tuple[float, float]] = []
        for row, (x, y, width, height) in sorted(found[view].items(), key=lambda one: one[0], reverse=True):
            kind, _, name = row.partition(" ")
            if kind == "wrap" and not width:  # a menu that is closed: it opens above the canvas
                canvas = found[view]["wrap ui:GraphEditor"]
                yield _letter(left + (canvas[0] + 40) * scale, top + (canvas[1] + 90) * scale, LETTERS[name])
                continue
            x, y, width, height = left + x * scale, top + y * scale, max(width * scale, 6), max(height * scale, 6)
            if kind == "wrap":
                yield _part(name, x, y, width, height)
            else:
                yield _outlet(name, x + width / 2, y + height / 2, taken)
    yield '<text x="820" y="22" font-weight="bold">Outlets</text>'
    for at, (name, number) in enumerate(NUMBERS.items()):
        yield _circle(830, 40 + 22 * at, number) + f'<text x="846" y="{44 + 22 * at}">{escape(name)}</text>'
    below = 60 + 22 * len(NUMBERS)
    yield f'<text x="820" y="{below}" font-weight="bold">Parts</text>'
    for at, (name, letter) in enumerate(LETTERS.items()):
        y = below + 12 + 22 * at
        yield _letter(821, y, letter) + f'<text x="846" y="{y + 13}">{escape(name)}</text>'
    yield "</svg>"


def _part(name: str, x: float, y: float, width: float, height: float) -> str:
    box = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
    corners = {
        "ui:NodeInputControl": (x + width - 18, y),
        "ui:StatusBar": (x + width / 2, y),
        "ui:MainMenu": (x + width, y - 6),
    }
    corner = corners.get(name, (x, y + height - 18))
    return f'<rect {box} fill="#2558d6" fill-opacity="0.06" stroke="#2558d6"/>' + _letter(*corner, LETTERS[name])


def _outlet(name: str, x: float, y: float, taken: list[tuple[float, float]]) -> str:
    """Return a number at a place, or below it where another number is."""
    down = y
    while any(abs(x - other) < 19 and abs(down - above) < 19 for other, above in taken):
        down += 4
    taken.append((x, down))
    line = f'<path d="M{x:.0f} {y:.0f}V{down:.0f}" stroke="#b3241c"/>' if down > y else ""
    return line + _circle(x, down, NUMBERS[name])


def _circle(x: float, y: float, number: str) -> str:
    text = f'<text x="{x:.0f}" y="{y + 4:.0f}" fill="#ffffff" text-anchor="middle" font-size="11">{number}</text>'
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="9" fill="#b3241c"/>{text}'


def _letter(x: float, y: float, letter: str) -> str:
    text = f'<text x="{x + 9:.0f}" y="{y + 13:.0f}" fill="#ffffff" text-anchor="middle" font-size="11">{letter}</text>'
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="18" height="18" rx="3" fill="#2558d6"/>{text}'


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text("\n".join(drawing(asyncio.run(boxes()))) + "\n", encoding="utf-8")
