"""The platform's examples of front ends in a browser, through the interface at the window."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin
from platform_documents import block, section
from playwright.async_api import Browser
from test_frontend_examples import ARGUMENTS, calls, column

from tavern_host import Host
from tavern_host.testing.http import served
from tavern_studio.testing import show

MODULE = """
import { h } from "vue";

const mark = (name) => ({ name: "Mark", render: () => h("b", { "data-mark": `PLUGIN ${name}` }, "•") });
const wrap = (original) => original;
const results = ((window.results ??= {})["PLUGIN"] = {});
const attempt = (name, call) => {
  try {
    call();
    results[name] = "done";
  } catch (error) {
    results[name] = String(error);
  }
};
"""


def entry(plugin: str, lines: Sequence[tuple[str, str]]) -> str:
    """Return a module that makes calls of the interface, each under a name."""
    api = "window.ComfyTavern.extensionApi"
    body = [f"attempt({json.dumps(name)}, () => {api}.{call});" for name, call in lines]
    return MODULE.replace("PLUGIN", plugin) + "\n".join(body)


async def test_the_examples_run_as_they_are_printed(spec_dir: Path, tmp_path: Path, browser: Browser) -> None:
    manifest = block(spec_dir, "000", "6.2")
    asked: dict[str, list[str]] = {
        part: re.findall(r'^ +- "([^"]+)"', manifest.partition(f"{part}:\n")[2].split(":\n")[0], re.MULTILINE)
        for part in ("hooks", "wrap", "inject")
    }
    own = [
        *(
            (name, f"hooks.on('{name}', (event) => event)")
            for name in asked["hooks"]
            if name.startswith("hook:client:")
        ),
        *((name, f"ui.wrapComponent('{name}', wrap)") for name in asked["wrap"]),
        *((name, f"ui.registerOutletComponent('{name}', mark('{name}'))") for name in asked["inject"]),
        ("services.override", "services.override('workflowManager', {})"),
        ("ui.overrideComponent", "ui.overrideComponent('ui:StatusBar', mark('override'))"),
    ]
    assert len(own) == 13
    awesome = tmp_path / "my_awesome_plugin"
    files = {"nodes/__init__.py": "", "tools/.keep": "", "dist/style.css": "", "web/index.ts": ""}
    write_plugin(awesome, {**files, "dist/index.js": entry("awesome", own)})
    (awesome / "plugin.yaml").write_text(manifest)

    parts, outlets = (column(section(spec_dir, "000", number)) for number in ("21.2", "21.3"))
    outlets = [name.replace("{panelId}", "nodes") for name in outlets]
    hooks = column(section(spec_dir, "000", "21.4"))
    every = [
        *((name, f"ui.wrapComponent('{name}', wrap)") for name in parts),
        *((name, f"ui.registerOutletComponent('{name}', mark('{name}'))") for name in outlets),
        *((name, f"hooks.on('{name}', (event) => event)") for name in hooks),
        *((path, f"{path}({ARGUMENTS[path]})") for path in sorted(calls(spec_dir))),
    ]
    permissions: dict[str, Any] = {
        "hooks": hooks,
        "ui": {"wrap": parts, "inject": outlets, "override": ["ui:StatusBar"]},
        "services": {"override": ["workflowManager"]},
    }
    frontend = {"vanilla": {"entry": "index.js"}}
    option = {"key": "extensions.acme-tables.enableFeatureX", "type": "boolean", "label": "X", "defaultValue": True}
    tables = tmp_path / "acme_tables"
    write_plugin(
        tables,
        {"web/index.js": entry("tables", every)},
        frontend=frontend,
        permissions=permissions,
        configOptions=[option],
    )

    trust = ["my-awesome-plugin", "acme-tables"]
    async with Host(tmp_path / "project", plugins=[awesome, tables], trust=trust) as host, served(host) as site:
        assert [host.plugin(name).problems for name in trust] == [[], []]
        [info] = [one for one in await (await site.get("/api/plugins")).json() if one["name"] == "my-awesome-plugin"]
        wanted = re.findall(r"^  +(\w+)\??: ", block(spec_dir, "000", "15.2.1").partition("interface")[2], re.MULTILINE)
        assert [field for field in wanted[:7] if field not in {*info, *info["frontend"]}] == []

        context = await browser.new_context(locale="en")
        studio = await show(context, site)
        page = studio.page
        await page.wait_for_function("() => window.results?.awesome && window.results?.tables")
        results = await page.evaluate("window.results")
        refused = results["awesome"].pop("ui.overrideComponent")  # the manifest's list of overrides is empty
        for fact in ("my-awesome-plugin", 'ui.overrideComponent("ui:StatusBar")', "ui.override:ui:StatusBar"):
            assert fact in refused
        assert {name: said for one in results.values() for name, said in one.items() if said != "done"} == {}
        for mark in ("awesome sidebar:icon-bar:tabs:after", "tables layout:header:before-tabs", "tables outlet"):
            await page.wait_for_selector(f'[data-mark="{mark}"]')
        with pytest.raises(Exception, match="extensionApi"):  # nobody's call
            await page.evaluate("window.ComfyTavern.extensionApi.ui.addMenuItem({ id: 'x', title: 'X', run() {} })")
        assert studio.mistakes == []
        await context.close()  # a server that stops waits for its sockets
