"""The platform's examples of front ends in a browser, through the interface at the window."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.folder_plugins import write_plugin
from platform_documents import block, section
from playwright.async_api import Browser
from test_frontend_examples import ARGUMENTS, calls, column

from tavern_host import Host
from tavern_host.testing.http import served
from tavern_studio.testing import show

MODULE = """
import { h } from "vue";

const mark = (name) => ({ name: "Mark", render: () => h("b", { "data-mark": name }, "•") });
const wrap = (original) => original;
const results = (window.results = {});
const attempt = (name, call) => {
  try {
    call();
    results[name] = "done";
  } catch (error) {
    results[name] = String(error);
  }
};
"""


def entry(lines: Sequence[tuple[str, str]]) -> str:
    """Return a module that makes calls of the interface, each under a name."""
    api = "window.ComfyTavern.extensionApi"
    return MODULE + "\n".join(f"attempt({json.dumps(name)}, () => {api}.{call});" for name, call in lines)


async def test_the_examples_run_as_they_are_printed(spec_dir: Path, tmp_path: Path, browser: Browser) -> None:
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
        {"web/index.js": entry(every)},
        description="All of the tables.",
        frontend=frontend,
        permissions=permissions,
        configOptions=[option],
    )

    async with Host(tmp_path / "project", plugins=[tables], trust=["acme-tables"]) as host, served(host) as site:
        assert host.plugin("acme-tables").problems == []
        [info] = [one for one in await (await site.get("/api/plugins")).json() if one["name"] == "acme-tables"]
        wanted = re.findall(r"^  +(\w+)\??: ", block(spec_dir, "000", "15.2.1").partition("interface")[2], re.MULTILINE)
        assert [field for field in wanted[:7] if field not in {*info, *info["frontend"]}] == []

        context = await browser.new_context(locale="en")
        studio = await show(context, site)
        await studio.page.wait_for_function(f"() => Object.keys(window.results ?? []).length === {len(dict(every))}")
        assert set((await studio.page.evaluate("results")).values()) == {"done"}
        for mark in ("layout:header:before-tabs", "outlet"):
            await studio.page.wait_for_selector(f'[data-mark="{mark}"]')
        assert studio.mistakes == []
        await context.close()  # a server that stops waits for its sockets
