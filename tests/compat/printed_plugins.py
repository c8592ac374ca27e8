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
    return _write(
        parent / "my-awesome-plugin",
        {
            "plugin.yaml": printed("awesome-6.2.yaml"),
            "nodes/AwesomeNode.ts": "export {};\n",
            "nodes/awesome_node.py": NODE,
            "tools/awesome.tool.json": printed("my-awesome.tool.json"),
            "web/index.js": "export {};\n",
            "web/style.css": "",
            "dist/index.js": entry,
            "dist/style.css": ":root { --awesome: 7 }\n",
        },
    )


def write_short(parent: Path) -> Path:
    """Write the plugin of §18."""
    return _write(
        parent / "my-awesome-plugin",
        {
            "plugin.yaml": printed("awesome-18.2.yaml"),
            "src/MyAwesomePlugin.ts": "export {};\n",
            "tools/my-awesome.tool.json": printed("my-awesome.tool.json"),
        },
    )


def write_fetcher(parent: Path) -> Path:
    """Write the plugin of §16."""
    return _write(
        parent / "bilibili-fetcher",
        {
            "plugin.yaml": printed("bilibili-16.2.yaml"),
            "scripts/BilibiliFetch.py": SCRIPT,
            "tools/bilibili.tool.json": printed("bilibili.tool.json"),
        },
    )


def _write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())
    return folder
