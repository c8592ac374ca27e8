"""Tools of a plugin of VCPToolBox: each command of its manifest becomes one, its program runs in the sandbox as it is.
What its settings file holds is a secret, and is not copied."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_importers.api.importers import ForeignFile, ImportOptions
from tavern_tools.foreign.plugin_folder import (
    MOST_TOOLS,
    PluginFolder,
    filled,
    is_picked,
    is_secret,
    name_of,
    one_line,
)

MANIFEST = "plugin-manifest.json"
FOLDER = "program"
_PAIR = re.compile(r"([A-Za-z_][\w-]{0,63})\s*[:：]\s*「始(?:ESCAPE)?」(.{0,2000}?)「末(?:ESCAPE)?」", re.DOTALL)
_PYTHON, _NODE, _BUN = ("python", "python3"), ("node", "nodejs"), ("bun",)
_SECONDS = 30
_MOST_TEXT = 8000
_TYPES = {"integer": "number", "number": "number", "float": "number", "boolean": "boolean"}
_OTHERS = {
    "messagePreprocessor": "changes messages before a model sees them",
    "service": "is a server in the process of VCPToolBox",
    "hybridservice": "is a server in the process of VCPToolBox",
}


class VcpImport:
    """Reads one plugin."""

    def __init__(self, manifest: dict[str, Any], file: ForeignFile, options: ImportOptions) -> None:
        self._manifest, self._file, self._options = manifest, file, options
        given = options.name or one_line(manifest.get("name"), 60) or "plugin"
        title = one_line(manifest.get("displayName"), 80) or given
        version = str(manifest.get("version"))
        self.plugin = PluginFolder(
            name_of(given, "vcp"),
            title,
            one_line(manifest.get("description"), 400) or title,
            version if re.fullmatch(r"\d{1,6}(\.\d{1,6}){1,2}", version) else "0.1.0",
        )
        self.without_effect: list[str] = []
        self.settings: list[dict[str, Any]] = []
        self.saved: list[str] = []
        self._variables: dict[str, str] = {}

    def read(self) -> PluginFolder:
        """Return the plugin. Raises `InvalidInput` for one whose program is not run here."""
        kind = str(self._manifest.get("pluginType"))
        if kind in _OTHERS:
            raise InvalidInput(
                f"a plugin of the type {kind} {_OTHERS[kind]}, and is no tool; synchronous ones can be imported"
            )
        self._say_what_stays(kind)
        interpreter, program = self._program()
        self._copy()
        self._read_settings()
        commands = [*self._commands()]
        picked = [one for one in commands if is_picked(self._options.only, one[0])]
        if not picked or len(picked) > MOST_TOOLS:
            raise InvalidInput(
                f"{len(picked)} of its {len(commands)} commands are picked; 1 to {MOST_TOOLS} become tools"
            )
        is_python = interpreter == "python"
        script = f"{FOLDER}/vcp_call.{'py' if is_python else 'mjs'}"
        values = {"program": program, "variables": self._variables, "commands": {one[0]: one[3] for one in picked}}
        write = repr if is_python else lambda value: json.dumps(value, ensure_ascii=False, indent=2)
        text = filled("vcp.py.txt" if is_python else "vcp.mjs.txt", **{key: write(one) for key, one in values.items()})
        self.plugin.add(script, text)
        owner = f"{self.plugin.name}:{picked[0][0]}"
        for name, description, parameters, _ in picked:
            self._add(name, description, parameters, f"{interpreter} {script} {name}", owner)
        return self.plugin

    def _say_what_stays(self, kind: str) -> None:
        capabilities = self._manifest.get("capabilities")
        placeholders = capabilities.get("systemPromptPlaceholders") if isinstance(capabilities, dict) else None
        names = [str(one.get("placeholder"))[:60] for one in _listed(placeholders) if isinstance(one, dict)]
        if names:
            self.without_effect.append(f"placeholders of prompts: {', '.join(names)[:300]}")
        if kind == "asynchronous":
            self.without_effect.append("its later answer: what it says at once is the result")
        for key in ("webSocketPush", "refreshIntervalCron", "hasApiRoutes", "requiresAdmin"):
            if self._manifest.get(key):
                self.without_effect.append(key)

    def _program(self) -> tuple[str, list[str]]:
        entry = self._manifest.get("entryPoint")
        entry = entry if isinstance(entry, dict) else {}
        try:
            words = shlex.split(entry.get("command") or "")
        except (ValueError, AttributeError):
            words = []
        script = entry.get("script")
        if len(words) < 2 and isinstance(script, str):
            words = [str(entry.get("type")), script]
        known = {name: kind for kind, names in (("python", _PYTHON), ("node", _NODE), ("bun", _BUN)) for name in names}
        interpreter = known.get(PurePosixPath(words[0]).name.lower() if words else "")
        if interpreter is None or len(words) < 2:
            raise InvalidInput(
                f"its program is {' '.join(words)[:200]!r}, and only those of Python, Node.js and Bun are run here"
            )
        files = {*self._file.beside}
        named = next((word.removeprefix("./") for word in words[1:] if not word.startswith("-")), "")
        if named not in files:
            hint = (
                "import its folder, or a ZIP archive of it"
                if not files
                else f"its folder has {', '.join(sorted(files)[:5])}"
            )
            raise InvalidInput(f"its program {named!r:.100} is not with the manifest; {hint}")
        return interpreter, words[1:]

    def _copy(self) -> None:
        for path, data in self._file.beside.items():
            name = path.rpartition("/")[2].lower()
            if name.endswith(".env"):
                self.saved += re.findall(
                    r"^\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*\S", data.decode(errors="replace"), re.MULTILINE
                )
            else:
                self.plugin.files[f"{FOLDER}/{path}"] = data
        self.plugin.files[f"{FOLDER}/{MANIFEST}"] = self._file.content

    def _read_settings(self) -> None:
        schema = self._manifest.get("configSchema")
        defaults = self._manifest.get("defaults")
        for name, about in schema.items() if isinstance(schema, dict) else ():
            given = about if isinstance(about, dict) else {"type": about}
            key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60]
            if not key or f"TAVERN_CONFIG_{key.upper()}" in self._variables:
                self.without_effect.append(f"the setting {name[:60]!r}, whose name cannot be kept")
                continue
            kind = "password" if is_secret(name) else _TYPES.get(str(given.get("type")).lower(), "string")
            option: dict[str, Any] = {"key": key, "type": kind, "label": name[:80]}
            if text := one_line(given.get("description"), 500):
                option["description"] = text
            default = given.get("default", defaults.get(name) if isinstance(defaults, dict) else None)
            is_number = isinstance(default, int | float) and not isinstance(default, bool)
            is_line = isinstance(default, str) and "\n" not in default
            if {"string": is_line, "number": is_number, "boolean": isinstance(default, bool)}.get(kind, False):
                option["defaultValue"] = default
            self._variables[f"TAVERN_CONFIG_{key.upper()}"] = name
            self.settings.append(option)

    def _commands(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, str]]]:
        """Yield the commands: a name, what is said of it, the arguments as far as examples show them, and those that
        are always the same."""
        capabilities = self._manifest.get("capabilities")
        listed = capabilities.get("invocationCommands") if isinstance(capabilities, dict) else None
        given = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        taken: set[str] = set()
        for one in given[:1000] or [{}]:
            said = one.get("commandIdentifier") or one.get("command") or "run"
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", str(said)).strip("_.")[:60] or f"command{len(taken) + 1}"
            while name.lower() in taken:
                name += "_2"
            taken.add(name.lower())
            texts = [one[key][:_MOST_TEXT] for key in ("description", "example") if isinstance(one.get(key), str)]
            pairs = {key: value.strip() for text in texts for key, value in _PAIR.findall(text)}
            pairs.pop("tool_name", None)
            fixed = {key: value for key, value in pairs.items() if key == "command"}
            arguments = {key: _argument(value) for key, value in pairs.items() if key not in fixed}
            yield name, texts[0] if texts else self.plugin.description, arguments, fixed

    def _add(self, name: str, description: str, arguments: dict[str, Any], command: str, owner: str) -> None:
        communication = self._manifest.get("communication")
        timeout = communication.get("timeout") if isinstance(communication, dict) else None
        tool: dict[str, Any] = {
            "id": f"{self.plugin.name}:{name}",
            "displayName": self.plugin.title,
            "description": description.strip(),
            "version": self.plugin.version,
            "implementation": {"type": "script", "command": command},
            "parameters": {"type": "object", "properties": arguments, "additionalProperties": True},
            "timeout": timeout if type(timeout) is int and 0 < timeout <= 3_600_000 else _SECONDS * 1000,
        }
        if tool["id"] != owner:
            tool["implementation"]["settingsOf"] = owner
        elif self.settings:
            tool["configSchema"] = self.settings
        if self._options.hosts:
            tool["securityContext"] = {"networkAccess": {"allowHosts": self._options.hosts}}
        self.plugin.add_tool(tool)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _argument(example: str) -> dict[str, Any]:
    return {"description": f"For example: {one_line(example, 200)}"} if example else {}
