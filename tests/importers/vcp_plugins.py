"""Plugins as they are made for VCPToolBox: their manifests with their programs, in Python and for Node.js."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CALCULATOR: dict[str, Any] = {
    "manifestVersion": "1.0.0",
    "name": "SciCalculator",
    "displayName": "科学计算器",
    "version": "1.1.1",
    "description": "执行计算。",
    "pluginType": "synchronous",
    "entryPoint": {"type": "python", "command": "python calculator.py"},
    "communication": {"protocol": "stdio", "timeout": 15000},
    "configSchema": {"PRECISION": {"type": "integer", "description": "digits", "default": 2}, "SECRET_KEY": "string"},
    "capabilities": {
        "invocationCommands": [
            {
                "commandIdentifier": "Divide",
                "description": "除法。\ntool_name:「始」SciCalculator「末」,\nleft:「始」1「末」,\nright:「始」3「末」",
            }
        ]
    },
}
PROGRAM = """
import io, json, os, sys
sys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
given = json.loads(sys.stdin.read())
if "left" not in given:
    print(json.dumps({"status": "error", "error": "缺少 left"}, ensure_ascii=False))
    sys.exit(1)
value = round(float(given["left"]) / float(given["right"]), int(os.environ["PRECISION"]))
print(json.dumps({"status": "success", "result": f"结果：{value}"}, ensure_ascii=False))
"""
NOTES: dict[str, Any] = {
    "name": "NoteKeeper",
    "pluginType": "synchronous",
    "entryPoint": {"type": "nodejs", "command": "node note.js"},
    "communication": {"protocol": "stdio"},
    "capabilities": {
        "systemPromptPlaceholders": [{"placeholder": "{{Notes}}"}],
        "invocationCommands": [
            {"commandIdentifier": "Create", "example": "command:「始」create「末」,\ntitle:「始」标题「末」"},
            {"commandIdentifier": "List", "example": "command:「始」list「末」"},
        ],
    },
}
NOTE_PROGRAM = """
let input = "";
process.stdin.on("data", (part) => (input += part));
process.stdin.on("end", () => {
  const { command, title } = JSON.parse(input);
  console.error("log");
  console.log(JSON.stringify({ status: "success", result: command === "create" ? { created: title } : [1, 2] }));
});
"""


def write_calculator(folder: Path) -> Path:
    """Write the plugin in Python, with a settings file that holds a secret."""
    folder.mkdir(parents=True)
    (folder / "plugin-manifest.json").write_text(json.dumps(CALCULATOR, ensure_ascii=False), encoding="utf-8")
    (folder / "calculator.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "config.env").write_text("SECRET_KEY=very-secret-indeed\nPRECISION=4\n")
    return folder


def write_notes(folder: Path) -> Path:
    """Write the plugin for Node.js, which has two commands."""
    folder.mkdir(parents=True)
    (folder / "plugin-manifest.json").write_text(json.dumps(NOTES, ensure_ascii=False), encoding="utf-8")
    (folder / "note.js").write_text(NOTE_PROGRAM)
    return folder
