"""Walks views through windows, looks and languages, and says what of them does not fit or cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Literal

from playwright.async_api import Page, expect
from studio_bench import Studio, read_until

from tavern_studio.page import WEB

AXE = WEB.parent / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
WINDOWS = ((1280, 800), (1920, 1080), (420, 800))
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LANGUAGES = ("en", "zh")
RULES = {"light": ["wcag2a", "wcag2aa"], "dark": ["color-contrast"]}
"""What axe-core looks at: a dark page has the elements of the light one in other colours."""
FOR_FINGERS = ["wcag22aa"]
"""What it looks at in a narrow window, too: how large is what fingers press."""
SETTLED = 2_000
"""Milliseconds after which a view that was resized, and what it asks the server for, is as it stays."""
_VIOLATIONS = """async (rules) => (await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""

_UNFIT = """() => {
  const faults = [], say = (one) => `${one.tagName.toLowerCase()}.${[...one.classList].join(".")} ` +
    `"${(one.innerText || one.ariaLabel || one.value || "").trim().slice(0, 40)}"`;
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) faults.push(`the page scrolls sideways: ${wide}`);
  const dialogs = document.querySelectorAll("dialog[open], [role=dialog]");
  const scope = dialogs[dialogs.length - 1] ?? document.body;
  const onCanvas = (one) => one.closest(".vue-flow__viewport, .vue-flow__minimap") !== null;
  const seen = (one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  // Where something lies, as far as what it lies in shows it; `cut` where that cannot be scrolled.
  const shownPart = (one, box) => {
    let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom], cut = 0, isFixed = false;
    for (let at = one.parentElement; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (["sticky", "fixed"].includes(style.position)) isFixed = true;
      if (style.overflowX === "visible") continue;
      const around = at.getBoundingClientRect();
      if (["hidden", "clip"].includes(style.overflowX)) cut = Math.max(cut, around.left - left, right - around.right);
      [left, top] = [Math.max(left, around.left), Math.max(top, around.top)];
      [right, bottom] = [Math.min(right, around.right), Math.min(bottom, around.bottom)];
    }
    [left, top] = [Math.max(left, 0), Math.max(top, 0)];
    [right, bottom] = [Math.min(right, innerWidth), Math.min(bottom, innerHeight)];
    return { left, top, right, bottom, cut, isFixed, isThere: right - left > 2 && bottom - top > 2 };
  };
  const controls = "button, a[href], input:not([type=hidden]), select, textarea, summary, [role=tab]";
  for (const one of scope.querySelectorAll(controls)) {
    const box = one.getBoundingClientRect();
    if (!seen(one) || onCanvas(one) || box.width < 3 || box.height < 3) continue;
    const part = shownPart(one, box);
    if (part.cut > 2) faults.push(`cut off by ${Math.round(part.cut)}: ${say(one)}`);
    if (!part.isThere) continue;
    const [x, y] = [(part.left + part.right) / 2, (part.top + part.bottom) / 2];
    const over = document.elementFromPoint(x, y);
    const isIt = !over || over.contains(one) || one.contains(over) || one.closest("label")?.contains(over);
    if (!isIt && !shownPart(over, box).isFixed && one.getClientRects().length === 1)
      faults.push(`covered by ${say(over)}: ${say(one)}`);
  }
  const texts = [], walk = document.createTreeWalker(scope, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const [node, one] = [walk.currentNode, walk.currentNode.parentElement];
    if (!node.data.trim() || !seen(one) || onCanvas(one) || one.closest("svg, .sr-only, .cm-editor, option")) continue;
    const style = getComputedStyle(one);
    const isShortened = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
    if (style.overflowX === "hidden" && one.clientWidth > 3 && one.scrollWidth > one.clientWidth + 1 && !isShortened)
      faults.push(`text is cut: ${say(one)}`);
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      const part = shownPart(node, box);
      if (part.isThere && !part.isFixed) texts.push({ one, ...part });
    }
  }
  texts.sort((a, b) => a.top - b.top);
  texts.forEach((a, at) => {
    for (let other = at + 1; other < texts.length && texts[other].top < a.bottom - 4; other++) {
      const b = texts[other], across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      if (a.one !== b.one && across > 3 && Math.min(a.bottom, b.bottom) - b.top > 4)
        faults.push(`overlap: ${say(a.one)} and ${say(b.one)}`);
    }
  });
  return [...new Set(faults)].slice(0, 8);
}"""
"""What scrolls sideways, is cut off, is covered or overlaps, apart from what lies on a canvas, where people pan."""


_TRANSLATED = """(language) => {
  document.querySelector("#app").__vue_app__.config.globalProperties.$i18n.locale = language;
  document.documentElement.lang = language;
}"""


async def take_axe(page: Page) -> None:
    """Let a page look at itself with axe-core."""
    await page.add_script_tag(path=AXE)


async def switch_language(page: Page, language: str) -> None:
    """Switch the page to a language, as a person does by the palette, which does not open above a dialogue."""
    if await page.evaluate("document.documentElement.lang") == language:
        return
    if await page.get_by_role("dialog").count():
        await page.evaluate(_TRANSLATED, language)
        return
    await page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox")
    await expect(palette.last).to_be_focused()
    await page.keyboard.type("English")
    await page.keyboard.press("Enter")
    await expect(page.locator(f"html[lang={language}]")).to_have_count(1)
    await expect(page.locator("dialog.palette, .palette[role=dialog]")).to_have_count(0)


async def faults(studio: Studio, name: str, languages: tuple[str, ...] = LANGUAGES) -> AsyncIterator[str]:
    """Yield what is wrong with the view that is shown, in all windows, looks and languages; `name` is for pictures."""
    page = studio.page
    for language in languages:
        await switch_language(page, language)
        for width, height in WINDOWS:
            await page.set_viewport_size({"width": width, "height": height})
            for theme in THEMES:
                await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                found = await read_until(
                    lambda one: not one, partial(page.evaluate, _VIOLATIONS, RULES[theme]), SETTLED
                )
                if theme == "light":
                    found += await read_until(lambda one: not one, partial(page.evaluate, _UNFIT), SETTLED)
                await studio.picture(f"{name}-{width}-{theme}-{language}")
                for one in found:
                    yield f"{width} {theme} {language}: {one}"
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.emulate_media(color_scheme="light")
