"""Front ends of plugins in the open page: who stands around whom, what mistakes cost, and what goes away."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from helpers.folder_plugins import write_plugin
from playwright.async_api import Browser, Page, Route, expect
from studio_bench import WAIT, WIDE, Studio, show

from tavern_host import Host
from tavern_host.testing.http import TOKEN, served
from tavern_studio.page import WEB

FRONTEND = {"type": "vanilla", "vanilla": {"entry": "index.js", "rootDir": "web"}}
WRAP = """
import { h } from "vue";
export default function setup(api) {
  api.ui.wrapComponent("ui:HomeSidebar", (original) => ({
    inheritAttrs: false,
    setup: (_props, { attrs, slots }) => () => h("div", { class: "around NAME" }, h(original, attrs, slots)),
  }));
}
"""
REPLACE = """
import { h } from "vue";
export default (api) => api.ui.overrideComponent("ui:MainMenu", () => h("b", { class: "menu-of" }, "NAME"));
"""
FAULTS = """
import { h, onMounted } from "vue";
const button = (name, onClick) => ({ setup: () => () => h("button", { class: name, onClick }, name) });
export default function setup(api) {
  const put = (outlet, component) => api.ui.registerOutletComponent(outlet, component);
  put("layout:header:before-tabs", () => { throw new Error("while drawn"); });
  put("layout:header:after-tabs", button("event", () => { throw new Error("in an event"); }));
  put("layout:header:right", button("promise", () => Promise.reject(new Error("in a promise"))));
  put("sidebar:panel:header[home]", {
    setup: () => { onMounted(async () => { throw new Error("on its way"); }); return () => h("i"); },
  });
  put("sidebar:icon-bar:tabs:after", () => h("b", { class: "works" }, "works"));
  setTimeout(() => { throw new Error("in a timer"); });
}
"""
SECOND_VUE = """
import "./parts/vue.js";
export default function setup(api) {
  api.ui.addMenuItem({ id: "there", title: "From another Vue", run: () => undefined });
}
"""
NEVER = "await new Promise(() => undefined);"
GRANTED = """
import { h } from "vue";
const Mark = () => h("b", { class: "granted" });
export default (api) => api.ui.registerOutletComponent("sidebar:icon-bar:tabs:before", Mark);
"""
OLDER = """
import { h } from "vue";
const { extensionApi } = window.ComfyTavern;
extensionApi.ui.registerOutletComponent("sidebar:icon-bar:bottom:before", { render: () => h("b", { class: "older" }) });
setTimeout(() => {
  try { window.ComfyTavern.extensionApi.hooks.on("auth:login", () => undefined); }
  catch (error) { window.refused ??= error.message; }
}, 300);
"""


def plugin(folder: Path, code: str, **ui: Any) -> Path:
    """Write a plugin with a front end; `ui` are its permissions there."""
    name = folder.name.replace("_", "-")
    files = {"__init__.py": "", "web/index.js": code.replace("NAME", name)}
    frontend = {**FRONTEND, **ui.pop("frontend", {})}
    return write_plugin(folder, files, frontend=frontend, permissions={"ui": ui})


async def put_first(studio: Studio, names: str) -> None:
    """Decide in which order plugins stand on the page."""
    answer = await studio.site.post("/api/plugins/tavern-studio/settings", json={"uiOrder": names})
    assert answer.status == 200, await answer.text()


async def around(page: Page) -> list[str]:
    """Return whose wraps stand around the side bar, from the outside in."""
    classes = await page.locator(".around").evaluate_all("all => all.map(one => one.className)")
    return [one.removeprefix("around ") for one in classes]


async def reports(studio: Studio, name: str, *parts: str) -> None:
    """Check what the page of a plugin says."""
    await studio.open(f"/plugins/{name}")
    detail = studio.page.get_by_role("main")
    await expect(detail.get_by_role("heading", name=name)).to_be_visible()
    for part in parts:
        await expect(detail).to_contain_text(part)


async def test_plugins_meet_fail_and_go(browser: Browser, tmp_path: Path) -> None:
    made = tmp_path / "made"
    plugins = [
        plugin(made / "wrap_a", WRAP, wrap=["ui:HomeSidebar"]),
        plugin(made / "wrap_b", WRAP, wrap=["ui:HomeSidebar"]),
        plugin(made / "menu_a", REPLACE, override=["ui:MainMenu"]),
        plugin(made / "menu_b", REPLACE, override=["ui:MainMenu"]),
        plugin(
            made / "faults",
            FAULTS,
            inject=[
                *(f"layout:header:{place}" for place in ("before-tabs", "after-tabs", "right")),
                *("sidebar:panel:header", "sidebar:icon-bar:tabs:after"),
            ],
        ),
        plugin(made / "second_vue", SECOND_VUE),  # with another copy of the module that the page has
        plugin(made / "never_ends", NEVER, frontend={"panels": [{"id": "notes", "title": "Notes"}]}),
        plugin(made / "older", OLDER, inject=["sidebar:icon-bar:bottom:before"]),
    ]
    (vue,) = (WEB / "parts").glob("vue.runtime.*.js")
    (made / "second_vue" / "web" / "parts").mkdir()
    shutil.copy(vue, made / "second_vue" / "web" / "parts" / "vue.js")
    names = [folder.name.replace("_", "-") for folder in plugins]
    plugin(tmp_path / "inn" / "plugins" / "granted", GRANTED, inject=["sidebar:icon-bar:tabs:before"])
    async with Host(tmp_path / "inn", sample=True, plugins=plugins, trust=names) as host, served(host) as site:
        context = await browser.new_context(**WIDE)
        studio = await show(context, site)
        page = studio.page
        await expect(page.get_by_role("button", name="Notes")).to_be_visible()  # its code is not there yet
        await mistakes_cost_the_component(studio)
        await wraps_and_overrides_are_ordered(studio)

        # Each is taken away and given back in the open page.
        granted = page.locator(".granted")
        await expect(granted).to_have_count(0)
        await host.grant("granted")
        await expect(granted).to_have_count(1)
        await host.revoke("granted")
        await expect(granted).to_have_count(0)
        await some_of_it_is_revoked(page, host)
        await expect(page.locator(".around")).to_have_count(1)
        await host.enable("wrap-b")
        await expect(page.locator(".around")).to_have_count(2)
        await page.wait_for_function("window.refused !== undefined")
        assert "hook:client:auth:login" in await page.evaluate("window.refused")
        for is_on in (True, False, True):  # what has no setup is run again
            await expect(page.locator(".older")).to_have_count(int(is_on))
            await (host.disable("older") if is_on else host.enable("older"))

        assert await page.evaluate("__VUE_INSTANCE_SETTERS__.length") == 1
        await reports(studio, "second-vue", "brings a copy of Vue of its own")
        await studio.picture("extensions-second-vue")
        await studio.open("/plugins/never-ends")
        await expect(page.get_by_role("main").get_by_text("It did not finish within").first).to_be_visible()
        await reports(studio, "wrap-a", "loaded in")
        await only_mistakes_of_plugins(studio)

        await page.goto(f"http://127.0.0.1:{site.port}/?safe=1#/")
        await expect(page.get_by_text("Plugins are off in this window.")).to_be_visible()
        await studio.picture("extensions-safe")
        await expect(page.locator(".home-sidebar")).to_be_visible()
        assert await page.locator(".around, .works, .menu-of").count() == 0
        await the_culprit_is_found_by_halves(page)
        await page.get_by_role("button", name="Start with all plugins").click()
        await expect(page.locator(".around")).to_have_count(2)
        await context.close()


async def some_of_it_is_revoked(page: Page, host: Host) -> None:
    """Tell the page that a plugin lost one permission of several, while another plugin goes away."""
    lost = "ui.inject:sidebar:icon-bar:tabs:after"

    async def without_it(route: Route) -> None:
        answer = await route.fetch()
        plugins = await answer.json()
        (faults,) = (one for one in plugins if one["name"] == "faults")
        faults["permissions"] = [{**one, "granted": one["name"] != lost} for one in faults["permissions"]]
        assert lost in [one["name"] for one in faults["permissions"]]
        await route.fulfill(response=answer, json=plugins)

    every_list = re.compile(r"/api/plugins(\?|$)")
    await page.route(every_list, without_it)
    await host.disable("wrap-b")
    await expect(page.locator(".works")).to_have_count(0)
    await expect(page.locator("button.event, .plugin-badge")).not_to_have_count(0)
    await page.unroute(every_list)


async def the_culprit_is_found_by_halves(page: Page) -> None:
    """Search for the plugin that draws `.works`: say of each half whether it is there."""
    note, works = page.locator(".plugins-note"), page.locator(".works")
    said = await note.locator(".grow").inner_text()
    await note.get_by_role("button", name="Find the plugin that makes trouble").click()
    for _ in range(10):
        await expect(note).not_to_contain_text(said)  # the page was loaded again
        said = await note.locator(".grow").inner_text()
        if not said.startswith("It is one of"):
            break
        is_on = "faults" in said
        await expect(works).to_have_count(int(is_on))
        await note.get_by_role("button", name="It is there" if is_on else "It is gone").click()
    assert said == "It is faults: all others are on now."
    await expect(page.locator(".around")).to_have_count(2)
    await expect(works).to_have_count(0)


async def mistakes_cost_the_component(studio: Studio) -> None:
    """Press what fails: each shows a mark with the plugin's name, and the rest stays."""
    page = studio.page
    marks = page.locator(".plugin-badge")
    await expect(page.locator(".works")).to_be_visible()
    await expect(marks).to_have_count(2)  # what failed while it was drawn and when it was mounted
    await page.locator("button.event").click()
    await expect(marks).to_have_count(3)
    await page.locator("button.promise").click()
    await expect(marks).to_have_count(4)
    assert set(await marks.all_inner_texts()) == {"faults"}
    await studio.picture("extensions-faults")
    mistakes = ("while drawn", "in an event", "in a promise", "on its way", "in a timer")
    await reports(studio, "faults", *mistakes)
    await studio.picture("extensions-report")
    await studio.open("/")


async def wraps_and_overrides_are_ordered(studio: Studio) -> None:
    """Change the operator's order: wraps follow it in the open page, and of two overrides one is used."""
    page = studio.page
    await expect(page.locator(".around")).to_have_count(2)
    await expect(page.locator(".menu-of")).to_have_count(0)
    for order in ("wrap-a, menu-b", "wrap-b, wrap-a"):
        await put_first(studio, order)
        outermost = order.split(",")[0]
        await expect(page.locator(f".around.{outermost} .around")).to_have_count(1)
        assert await around(page) == sorted(["wrap-a", "wrap-b"], reverse=outermost == "wrap-b")
    await reports(studio, "menu-a", "None of them is used until you choose")
    await expect(page.locator("a[href='#/plugins/menu-b']").get_by_text("until you choose")).to_be_visible()
    await studio.picture("extensions-conflict")
    await page.get_by_role("button", name="Use menu-b").press("Enter")  # a toast may lie above
    await expect(page.locator(".menu-of")).to_have_text("menu-b")
    await reports(studio, "menu-a", "menu-b is used")
    await studio.open("/")


async def only_mistakes_of_plugins(studio: Studio) -> None:
    """Check that the page complained about the plugins that fail, and about nothing else."""
    others = [
        one
        for one in studio.mistakes
        if not one.startswith(("plugin faults", "plugin second-vue", "plugin never-ends"))
    ]
    assert others == []


YODELS = """
export default async () => {
  const isAlone = () => !Object.values(localStorage).some((said) => said.includes("wrap-a"));
  while (!isAlone()) await new Promise((go) => setTimeout(go, 20));
  console.log("on and on");
  for (;;);
};
"""
"""It is the last that is loaded, and hangs when nothing else is being loaded."""


async def test_a_start_that_hangs_is_followed_by_a_safe_one(browser: Browser, tmp_path: Path) -> None:
    made = tmp_path / "made"
    plugins = [
        plugin(made / "wrap_a", WRAP, wrap=["ui:HomeSidebar"]),
        plugin(made / "yodels", YODELS),
    ]
    async with (
        Host(tmp_path / "inn", sample=True, plugins=plugins, trust=["wrap-a", "yodels"]) as host,
        served(host) as site,
    ):
        context = await browser.new_context(**WIDE)
        context.set_default_timeout(WAIT)
        hung = await context.new_page()
        async with hung.expect_console_message(lambda said: said.text == "on and on"):
            await hung.goto(f"http://127.0.0.1:{site.port}/?token={TOKEN}", wait_until="commit")
        await hung.close()

        await context.add_init_script("const now = Date.now; Date.now = () => now() + 10_000")
        studio = await show(context, site)
        note = studio.page.get_by_text("the start before did not finish while yodels was loaded")
        await expect(note).to_be_visible()
        await studio.picture("extensions-suspect")
        await expect(studio.page.locator(".around")).to_have_count(0)
        await studio.page.get_by_role("button", name="Start without yodels").click()
        await expect(studio.page.locator(".around")).to_have_count(1)
        await expect(studio.page.get_by_text("This window has left out yodels.")).to_be_visible()
        assert studio.mistakes == []
        await context.close()
