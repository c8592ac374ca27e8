"""The front end is built as an installation builds it, and does in the page what the plugin's description says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tavern_host.testing import MakeHost
from tavern_host.testing.http import served
from tavern_studio.testing import show

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "studio_dice" / "frontend" / "node_modules",
    ROOT.parents[1] / "plugins" / "tavern_studio" / "frontend" / "node_modules",
)
"""Where Vite and Vue may be installed already: here, or for the studio, which is made of the same."""
NODE = {"id": "dice", "type": "studio-dice:Throw", "position": {"x": 0, "y": 0}}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Return the plugin's folder in a copy of the project of which a wheel was built."""
    packages = next((folder for folder in PACKAGES if folder.is_dir()), None)
    if packages is None:
        pytest.skip("its packages are not installed: npm install in studio_dice/frontend")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns("node_modules", "web", "dist"))
    link = copy / "studio_dice" / "frontend" / "node_modules"
    link.symlink_to(packages)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    link.unlink()  # a plugin's folder has no links out of it
    return copy / "studio_dice"


@pytest.mark.tavern(workflows={"throw": {"name": "Throw", "nodes": [NODE], "edges": []}})
async def test_a_die_shows_what_was_thrown_and_values_are_reset(
    built: Path, make_host: MakeHost, browser: Browser
) -> None:
    async with make_host(plugins=[built]) as host, served(host) as site:
        assert host.plugin("studio-dice").problems == []
        context = await browser.new_context(locale="en")
        studio = await show(context, site)
        await studio.open("/workflows/throw")
        node = studio.page.locator(".vue-flow__node")
        await node.get_by_role("button", name="Shake").click()
        await studio.page.get_by_role("banner").get_by_role("button", name="Run").click()
        await expect(node.get_by_role("img", name="1")).to_be_visible()  # the seed is 2

        await node.click(position={"x": 20, "y": 10})
        sides = studio.page.get_by_label("Inspector").get_by_role("spinbutton", name="sides")
        await sides.fill("20")
        await sides.press("Tab")
        await studio.page.get_by_label("Inspector").get_by_role("button", name="Reset to 6").click()
        await expect(sides).to_have_value("6")
        await studio.picture("dice")
        assert studio.mistakes == []
        await context.close()  # a server that stops waits for its sockets
