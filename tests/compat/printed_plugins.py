"""The plugins that the platform's documents print: their manifests and tool files byte for byte, and the files that the
documents show around them."""

from __future__ import annotations

from pathlib import Path

PRINTED = Path(__file__).parent / "printed"
TOOL, GET = "MyAwesomePlugin:doSomething", "BilibiliFetch:getSubtitle"
NODE = """
from tavern_host import node

@node(display_name="Awesome")
async def awesome_node(text: str) -> str:
    return text + "!"
"""
SCRIPT = """
import json, os, sys
url = json.load(sys.stdin)["url"]
print(json.dumps({"subtitle": "of " + url, "cookie": os.environ.get("TAVERN_CONFIG_BILIBILI_COOKIE")}))
"""


def printed(name: str) -> str:
    """Return one of the files as it is printed."""
    return (PRINTED / name).read_text("utf-8")


def write_awesome(parent: Path, entry: str = "") -> Path:
    """Write the plugin of §6, with a front end that was built, and the node in Python."""
    files = {"nodes/AwesomeNode.ts": "", "nodes/awesome_node.py": NODE, "web/index.js": "", "web/style.css": ""}
    files |= {"tools/awesome.tool.json": printed("my-awesome.tool.json"), "dist/index.js": entry}
    files |= {"plugin.yaml": printed("awesome-6.2.yaml"), "dist/style.css": ":root { --awesome: 7 }"}
    return _write(parent / "my-awesome-plugin", files)


def write_short(parent: Path) -> Path:
    """Write the plugin of §18."""
    files = {"plugin.yaml": printed("awesome-18.2.yaml"), "src/MyAwesomePlugin.ts": ""}
    files |= {"tools/my-awesome.tool.json": printed("my-awesome.tool.json")}
    return _write(parent / "my-awesome-plugin", files)


def write_fetcher(parent: Path) -> Path:
    """Write the plugin of §16."""
    files = {"plugin.yaml": printed("bilibili-16.2.yaml"), "scripts/BilibiliFetch.py": SCRIPT}
    files |= {"tools/bilibili.tool.json": printed("bilibili.tool.json")}
    return _write(parent / "bilibili-fetcher", files)


def _write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())
    return folder
