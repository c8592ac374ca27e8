"""Tools of an HTTP API that OpenAPI 3 describes: one for each operation, called by a script in the sandbox. The address
of the server and what says who calls are settings; nothing of the description is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_importers.api.importers import ImportOptions
from tavern_tools.catalog.schemas import schema_problems
from tavern_tools.foreign.plugin_folder import MOST_TOOLS, PluginFolder, filled, is_picked, name_of, one_line
from tavern_tools.foreign.schemas import MOST_BYTES, Schemas, size_of

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_READ, _REPEATED = ("get", "head", "options", "trace"), ("put", "delete")
_FORM = "application/x-www-form-urlencoded"
_MOST_TEXT = 1000
SCRIPT = "scripts/call.py"


class ApiImport:
    """Reads one description."""

    def __init__(self, document: dict[str, Any], options: ImportOptions, file: str) -> None:
        self._document, self._options = document, options
        self._schemas = Schemas(document)
        self._info = self._schemas.resolved(document.get("info"))
        name = options.name or one_line(self._info.get("title"), 60) or file.rpartition(".")[0]
        self.plugin = PluginFolder(
            name_of(name, "api"),
            one_line(self._info.get("title"), 80) or name,
            f"{one_line(self._info.get('title'), 80) or name}: an HTTP API, imported from its description.",
        )
        self.without_effect: list[str] = []
        self.hosts: list[str] = []
        self._schemes: dict[str, dict[str, Any]] = {}
        self._operations: dict[str, dict[str, Any]] = {}

    def read(self) -> PluginFolder:
        """Return the plugin. Raises `InvalidInput` for a description of which nothing can be called."""
        if "swagger" in self._document:
            raise InvalidInput("this describes an API in OpenAPI 2 (Swagger): convert it to OpenAPI 3 and import that")
        self._read_schemes()
        known = [*self._found()]
        picked = [one for one in known if is_picked(self._options.only, *one[3])]
        if not picked:
            shown = ", ".join(names[0] for *_, names in known[:8]) or "none"
            raise InvalidInput(f"no operation of the API is picked; among its {len(known)} operations are {shown}")
        if len(picked) > MOST_TOOLS:
            message = f"the API has {len(picked):,} operations that are picked; at most {MOST_TOOLS} become tools"
            raise InvalidInput(f"{message}: pick some with --only, by their names, paths or tags, such as '*pets*'")
        server = self._server()
        for path, method, operation, names in picked:
            self._add(path, method, operation, names[0])
        if not self._operations:
            raise InvalidInput(f"none of the operations can be called: {'; '.join(self.without_effect)[:500]}")
        self._add_about(server)
        rows = "\n".join(f"    {name!r}: {operation!r}," for name, operation in self._operations.items())
        about = {"settings_of": (self.plugin.name, f"{self.plugin.name}:api"), "schemes": self._used()}
        self.plugin.add(
            SCRIPT, filled("openapi.py.txt", operations=rows, **{key: repr(one) for key, one in about.items()})
        )
        if self._schemas.outside:
            outside = ", ".join(sorted(self._schemas.outside)[:5])
            self.without_effect.append(f"references that lead out of the file or nowhere are left open: {outside}")
        return self.plugin

    @property
    def secrets(self) -> list[str]:
        """The settings that say who calls."""
        return [key for scheme in self._used().values() for key in scheme["settings"]]

    def _used(self) -> dict[str, dict[str, Any]]:
        named = {name for one in self._operations.values() for choice in one.get("security", ()) for name in choice}
        return {name: scheme for name, scheme in self._schemes.items() if name in named}

    def _found(self) -> Iterator[tuple[str, str, dict[str, Any], list[str]]]:
        """Yield the operations: path, method, what is said of them, and by which names they are picked."""
        taken: set[str] = {"api"}
        paths = self._document.get("paths")
        for path, given in paths.items() if isinstance(paths, dict) else ():
            item = self._schemas.resolved(given)
            for method in _METHODS:
                if not isinstance(item.get(method), dict):
                    continue
                operation = {**item[method], "parameters": self._parameters(item, item[method])}
                operation.setdefault("servers", item.get("servers"))
                said = operation.get("operationId")
                name = re.sub(r"[^\w.-]+", "_", said if isinstance(said, str) else f"{method}{path}").strip("_.")
                name = name[:80] or f"{method}_{len(taken)}"
                while name.lower() in {one.lower() for one in taken}:
                    name += "_2"
                taken.add(name)
                yield path, method, operation, [name, path, f"{method.upper()} {path}", *_tags(operation)]

    def _parameters(self, item: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
        found: dict[tuple[Any, Any], dict[str, Any]] = {}
        for source in (item, operation):
            listed = source.get("parameters")
            for one in map(self._schemas.resolved, listed if isinstance(listed, list) else ()):
                if isinstance(one.get("name"), str) and one.get("in") in ("path", "query", "header", "cookie"):
                    found[one["name"], one["in"]] = one
        return [*found.values()]

    def _server(self) -> str:
        """Return the address of the first server, with the defaults of its variables; nothing where it has none."""
        listed = self._document.get("servers")
        server = self._schemas.resolved(listed[0] if isinstance(listed, list) and listed else {})
        given = server.get("url")
        url = given if isinstance(given, str) else ""
        for name, variable in self._schemas.resolved(server.get("variables")).items():
            default = self._schemas.resolved(variable).get("default")
            url = url.replace("{" + name + "}", str(default)) if default is not None else url
        if isinstance(listed, list) and len(listed) > 1:
            self.without_effect.append(
                f"further servers of the API ({len(listed) - 1}); the setting names the one in use"
            )
        if re.fullmatch(r"https?://[^\s{}@]+", url):
            self.hosts.append(url.split("/")[2])
            return url.rstrip("/")
        return ""

    def _read_schemes(self) -> None:
        components = self._schemas.resolved(self._document.get("components"))
        schemes = components.get("securitySchemes")
        for name, given in schemes.items() if isinstance(schemes, dict) else ():
            scheme = self._schemas.resolved(given)
            key = (
                re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()).strip("_")[:60]
                or "key"
            )
            kind, place = scheme.get("type"), scheme.get("in")
            if kind == "apiKey" and place in ("header", "query", "cookie") and isinstance(scheme.get("name"), str):
                self._schemes[name] = {"in": place, "name": scheme["name"], "settings": [key]}
            elif kind == "http" and str(scheme.get("scheme")).lower() == "basic":
                self._schemes[name] = {"in": "basic", "settings": [f"{key}_user", f"{key}_password"]}
            elif kind in ("http", "oauth2", "openIdConnect"):
                self._schemes[name] = {"in": "bearer", "settings": [key]}
                if kind != "http":
                    self.without_effect.append(f"{name}: its login; give a token that you have as the setting {key}")
            else:
                self.without_effect.append(f"{name}: who calls is said in a way that is not known here ({kind})")

    def _security(self, operation: dict[str, Any]) -> list[list[str]]:
        """Return the schemes of which one list is enough; none where nobody need say who calls."""
        listed = operation.get("security", self._document.get("security"))
        choices = [[*one] for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        known = [choice for choice in choices if all(name in self._schemes for name in choice)]
        return sorted(known, key=lambda choice: not choice) if known else []

    def _add(self, path: str, method: str, operation: dict[str, Any], name: str) -> None:
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        required: list[str] = []
        made: dict[str, Any] = {"method": method.upper(), "path": path, "parameters": []}
        for one in operation["parameters"]:
            argument = one["name"] if one["name"] not in properties else f"{one['in']}_{one['name']}"
            made["parameters"].append({"argument": argument, **self._sent(one)})
            properties[argument] = self._described(one, definitions)
            required += [argument] if one.get("required") is True or one["in"] == "path" else []
        body = self._body(operation, properties, definitions, name)
        if body is None:
            return
        if body:
            made["body"] = {key: body[key] for key in ("argument", "type")}
            required += [body["argument"]] if body["required"] else []
        if security := self._security(operation):
            made["security"] = security
        parameters = self._closed(properties, definitions) | ({"required": required} if required else {})
        said = [one_line(operation.get(key), _MOST_TEXT) for key in ("summary", "description")]
        text = " ".join(dict.fromkeys(one for one in said if one)) or f"{method.upper()} {path}"
        self._operations[name] = made
        document = self._tool(name, text + (" (deprecated)" if operation.get("deprecated") is True else ""))
        document |= {"displayName": one_line(operation.get("summary"), 80) or name, "parameters": parameters}
        document |= {"tags": tags} if (tags := _tags(operation)) else {}
        document |= {"readOnly": True} if method in _READ else {"idempotent": True} if method in _REPEATED else {}
        self.plugin.add_tool(document)

    def _closed(self, properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a tool's arguments; one that would be too large leaves open what they are."""
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if definitions:
            schema["$defs"] = {
                key: {name: value for name, value in one.items() if name != "$comment"}
                for key, one in definitions.items()
            }
        is_large = size_of(schema, MOST_BYTES) > MOST_BYTES
        if not is_large and not schema_problems(schema, ()):
            return schema
        note = f"schemas that are {'too large' if is_large else 'none'} are left open"
        self.without_effect += [note] if note not in self.without_effect else []
        return {"type": "object", "properties": {key: {} for key in properties}, "additionalProperties": False}

    def _tool(self, name: str, description: str) -> dict[str, Any]:
        return {
            "id": f"{self.plugin.name}:{name}",
            "description": description,
            "implementation": {
                "type": "script",
                "command": f"python {SCRIPT} {name}",
                "settingsOf": f"{self.plugin.name}:api",
            },
            "timeout": 35_000,
            "securityContext": {"networkAccess": {"allowHosts": ["{server}", *self._options.hosts]}},
        }

    def _sent(self, parameter: dict[str, Any]) -> dict[str, Any]:
        """Return how a parameter is sent."""
        sent = {"name": parameter["name"], "in": parameter["in"]}
        sent |= {"style": parameter["style"]} if isinstance(parameter.get("style"), str) else {}
        return sent | ({"explode": parameter["explode"]} if isinstance(parameter.get("explode"), bool) else {})

    def _described(self, parameter: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
        content = parameter.get("content")
        first = next(iter(content.values()), None) if isinstance(content, dict) else parameter
        found = self._schemas.schema(self._schemas.resolved(first).get("schema"), definitions)
        if text := one_line(parameter.get("description"), _MOST_TEXT):
            found = {**found, "description": text} if "$ref" not in found else {"allOf": [found], "description": text}
        return found

    def _body(
        self, operation: dict[str, Any], properties: dict[str, Any], definitions: dict[str, Any], name: str
    ) -> dict[str, Any] | None:
        """Return how the body of a request is sent, and add it to the arguments; nothing where there is none, None
        where it is of a kind that is not sent here."""
        body = self._schemas.resolved(operation.get("requestBody"))
        content = body.get("content")
        if not isinstance(content, dict) or not content:
            return {}
        kinds = {kind.partition(";")[0].strip().lower(): one for kind, one in content.items()}
        chosen = next((kind for kind in kinds if "json" in kind), None) or next(
            (kind for kind in (_FORM, "text/plain") if kind in kinds), None
        )
        if chosen is None:
            self.without_effect.append(f"{name}: its body is {', '.join(kinds)[:100]}, which is not sent from here")
            return None
        argument = "body" if "body" not in properties else "request_body"
        schema = self._schemas.schema(self._schemas.resolved(kinds[chosen]).get("schema"), definitions)
        text = one_line(body.get("description"), _MOST_TEXT) or "What is sent."
        properties[argument] = (
            {"allOf": [schema], "description": text} if "$ref" in schema else {"description": text} | schema
        )
        return {"argument": argument, "type": chosen, "required": body.get("required") is True}

    def _add_about(self, server: str) -> None:
        options: list[dict[str, Any]] = [
            {"key": "server", "type": "string", "label": "Address of the server", "defaultValue": server}
        ]
        options += [
            {"key": key, "type": "string" if key.endswith("_user") else "password", "label": key.replace("_", " ")}
            for key in dict.fromkeys(self.secrets)
        ]
        document = self._tool(
            "api", f"Says which server of {self.plugin.title} is set up, and which operations there are."
        )
        document["implementation"] = {"type": "script", "command": f"python {SCRIPT}"}
        document |= {"configSchema": options, "readOnly": True, "parameters": {"type": "object", "properties": {}}}
        self.plugin.add_tool(document)


def _tags(operation: dict[str, Any]) -> list[str]:
    tags = operation.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
