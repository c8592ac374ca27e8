"""Broken plugins whose `plugin.yaml` cannot be read, or says what cannot be."""

from __future__ import annotations

import os
from collections.abc import Callable

from broken_plugins import Corpus, Says
from inn import HEAD, HERE, TELLS, Inn

from tavern_host.contracts.plugins import PluginState

CORPUS = Corpus()
INVALID, INCOMPATIBLE, STARTED = PluginState.INVALID, PluginState.INCOMPATIBLE, PluginState.STARTED
CODE = {"__init__.py": TELLS}


def manifest(
    name: str, text: str | bytes, reason: str, mend: str, *, state: PluginState = INVALID, file: bool = True
) -> None:
    """Add a plugin with a manifest as it is; `NAME` in it stands for the plugin's name."""
    written = text.replace("NAME", name) if isinstance(text, str) else text.replace(b"NAME", name.encode())
    says = Says(name, state, reason, mend, "plugin.yaml" if file else None, at="link")
    CORPUS.add(name, lambda inn: inn.folder(name, written, CODE), says)


def whole(name: str, lines: str, reason: str, mend: str, **options: PluginState | bool) -> None:
    """Add a plugin whose manifest has all that it needs, and these lines."""
    manifest(name, f"name: NAME\ndisplayName: x\nversion: 1.0.0\n{lines}\n", reason, mend, **options)  # type: ignore[arg-type]


# --- what is no YAML, or no YAML that may be read ----------------------------------------------------

manifest("yaml-syntax", f"name: [NAME\n{HERE}", "expected ',' or ']'", "expected ',' or ']'")
manifest("yaml-tab", f"name: NAME\n\tversion: 1 {HERE}\n", "'\\t' that cannot start any token", "indent with spaces")
manifest("yaml-colon", f"name: NAME\ndescription: one: two {HERE}\n", "mapping values are not allowed", "in quotes")
whole("yaml-twice", f"displayName: y {HERE}", "the key 'displayName' stands here twice", "keep one of them")
whole(
    "yaml-twice-within",
    f"permissions:\n  hooks: []\n  hooks: [] {HERE}",
    "the key 'hooks' stands here twice",
    "keep one of them",
)
manifest(
    "yaml-laughs",
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)),
    "too many values",
    "aliases must not repeat",
)
manifest("yaml-circle", "name: &a [*a]\n", "contain themselves without end", "aliases must not")
manifest("yaml-deep", "name: " + "[" * 5_000 + "]" * 5_000, "not valid YAML", "nested")
manifest("yaml-huge", "name: NAME\n#" + "x" * (1 << 20), "larger than 1024 KiB", "1024 KiB")
manifest("yaml-latin", "name: NAME\ndescription: caf\u00e9\n".encode("latin-1"), "not UTF-8 text", "UTF-8")
manifest("yaml-utf-16", "name: NAME\n".encode("utf-16"), "not UTF-8 text", "UTF-8")
manifest("yaml-binary", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "not UTF-8 text", "UTF-8")
manifest("yaml-nul", f"name: NAME\nversion: 1\x00 {HERE}\n", "'\\x00' is not allowed", "is not allowed")
manifest("yaml-empty", "", "the key 'name' is missing", "'name'")
manifest("yaml-comment", "# nothing yet\n", "the key 'name' is missing", "'name'")
manifest("yaml-list", f"- name: NAME {HERE}\n", "found a list", "expected keys and values")
manifest("yaml-text", f"just text {HERE}\n", "found a text", "expected keys and values")
manifest("yaml-two", f"name: NAME\n--- {HERE}\nname: other\n", "found another document", "expected a single document")
manifest("yaml-alias", f"name: *nobody {HERE}\n", "undefined alias 'nobody'", "'nobody'")
manifest("yaml-tag", f"name: !!python/name:os.system x {HERE}\n", "python/name:os.system", "tag")
manifest(
    "yaml-tag-whole",
    f"--- !!python/object:os.system {HERE}\nname: NAME\ndisplayName: x\nversion: 1.0.0\n",
    "python/object:os.system",
    "tag",
)
whole(
    "yaml-tag-list",
    f"permissions: {{hooks: !!python/object/apply:os.system [x]}} {HERE}",
    "python/object/apply:os.system",
    "tag",
)

# --- what is no file ---------------------------------------------------------------------------------


def odd_file(name: str, make: Callable[[Inn], object], reason: str, mend: str) -> None:
    """Add a plugin that has something else in the place of its manifest."""
    CORPUS.add(name, make, Says(name, INVALID, reason, mend, at="link"))


def as_folder(inn: Inn) -> None:
    (inn.folder("yaml-is-folder", None, CODE) / "plugin.yaml").mkdir()


def as_pipe(inn: Inn) -> None:
    os.mkfifo(inn.folder("yaml-is-pipe", None, CODE) / "plugin.yaml")


def as_device(inn: Inn) -> None:
    root = inn.folder("yaml-is-device", None, CODE, at=inn.elsewhere / "yaml-is-device")
    (root / "plugin.yaml").symlink_to("/dev/zero")
    inn.dev.append(root)


def as_circle(inn: Inn) -> None:
    file = inn.folder("yaml-is-circle", None, CODE) / "plugin.yaml"
    file.symlink_to(file)


odd_file("yaml-is-folder", as_folder, "it is not a file", "a file")
odd_file("yaml-is-pipe", as_pipe, "it is not a file", "a file")
odd_file("yaml-is-device", as_device, "it is not a file", "a file")
odd_file("yaml-is-circle", as_circle, "Too many levels of symbolic links", "plugin.yaml")
odd_file(
    "yaml-missing",
    lambda inn: inn.folder("yaml-missing", None, CODE),
    "there is no plugin.yaml",
    "every plugin needs one",
)

# --- names and versions ------------------------------------------------------------------------------

manifest("no-name", f"displayName: x {HERE}\nversion: 1.0.0\n", "the key 'name' is missing", "'name'")
manifest("no-version", f"name: NAME {HERE}\ndisplayName: x\n", "the key 'version' is missing", "'version'")
manifest("no-display-name", f"name: NAME {HERE}\nversion: 1.0.0\n", "the key 'displayName' is missing", "'displayName'")
manifest(
    "name-not-kebab",
    f"name: Not_Kebab {HERE}\ndisplayName: x\nversion: 1.0.0\n",
    "found 'Not_Kebab'",
    "must be kebab-case",
)
manifest(
    "name-of-host",
    f"name: tavern-host {HERE}\ndisplayName: x\nversion: 1.0.0\n",
    "'tavern-host' is the host itself",
    "must be another name",
)
manifest(
    "name-long",
    f"name: {'n' * 300} {HERE}\ndisplayName: x\nversion: 1.0.0\n",
    "name: must be",
    "at most",
)
manifest(
    "version-words",
    f"name: NAME\ndisplayName: x\nversion: newest {HERE}\n",
    "found 'newest'",
    "must be a version such as 1.0.0",
)
manifest(
    "version-float",
    f"name: NAME\ndisplayName: x\nversion: 1.0 {HERE}\n",
    "version: input should be a valid string",
    'write it in quotes: "1.0"',
)
whole("api-words", f"apiVersion: newest {HERE}", "found 'newest'", "must be a version range such as '>=0.1,<0.2'")
whole(
    "api-future",
    "apiVersion: '>=99'",
    "it is made for tavern-host >=99",
    "install a version of api-future for tavern-host",
    state=INCOMPATIBLE,
    file=False,
)
whole(
    "api-past",
    "apiVersion: '<0.1'",
    "it is made for tavern-host <0.1",
    "install a version of api-past for tavern-host",
    state=INCOMPATIBLE,
    file=False,
)
whole(
    "runs-apart",
    "runtime: {placement: process}",
    "a process of its own",
    "this host runs wire 1, in process",
    state=INCOMPATIBLE,
    file=False,
)
whole(
    "wire-two",
    "runtime: {wire: 2}",
    "another wire version",
    "this host runs wire 1, in process",
    state=INCOMPATIBLE,
    file=False,
)
CORPUS.add(
    "name-of-entry-point",
    lambda inn: inn.installed("name-of-entry-point", HEAD, **{"name": "quite-another"}),
    Says("name-of-entry-point", INVALID, "the manifest 'quite-another'", "give both the same name", at="link"),
)

# --- values of the wrong type ------------------------------------------------------------------------

for key, line, expected in (
    ("displayName", "displayName: [a]", "should be a valid string"),
    ("description", "description: {a: b}", "should be a valid string"),
    ("apiVersion", "apiVersion: 3", "should be a valid string"),
    ("requires", "requires: [a]", "should be a valid dictionary"),
    ("requires.plugins", "requires: {plugins: [a]}", "should be a valid dictionary"),
    ("runtime", "runtime: process", "should be a valid dictionary"),
    ("runtime.placement", "runtime: {placement: moon}", "should be 'any', 'in-process' or 'process'"),
    ("nodes", "nodes: ./nodes", "should be a valid dictionary"),
    ("nodes.entry", "nodes: {entry: 5}", "should be a valid string"),
    ("tools", "tools: [./tools]", "should be a valid dictionary"),
    ("workflows", "workflows: 5", "should be a valid dictionary"),
    ("sample", "sample: true", "should be a valid dictionary"),
    ("configOptions", "configOptions: {a: b}", "should be a valid list"),
    ("permissions", "permissions: [a]", "should be a valid dictionary"),
    ("permissions.hooks", "permissions: {hooks: a}", "should be a valid list"),
    ("permissions.hooks.0", "permissions: {hooks: [{a: b}]}", "should be a valid string"),
    ("permissions.ui.wrap", "permissions: {ui: {wrap: {}}}", "should be a valid list"),
    ("permissions.services", "permissions: {services: [llm]}", "should be a valid dictionary"),
    ("permissions.services.use", "permissions: {services: {use: a}}", "should be a valid list"),
    ("permissions.events", "permissions: {events: NODE_ERROR}", "should be a valid dictionary"),
    ("publishes", "publishes: [a]", "should be a valid dictionary"),
):
    name = "type-" + "-".join(key.split(".")).replace("N", "-n").replace("V", "-v").replace("O", "-o")
    needed = "" if key == "displayName" else "displayName: x\n"
    text = f"name: NAME\n{needed}version: 1.0.0\n{line} {HERE}\n"
    manifest(name, text, f"{key}: input should be", expected)

# --- keys that are not known -------------------------------------------------------------------------

whole("key-unknown", f"hoks: [] {HERE}", "unknown key 'hoks'", "hoks")
whole("key-near", f"displayname: x {HERE}", "unknown key 'displayname'", "did you mean displayName?")
whole(
    "key-within",
    f"permissions:\n  servces: {{}} {HERE}",
    "unknown key 'permissions.servces'",
    "did you mean services?",
)
whole(
    "key-deep-within",
    f"permissions: {{services: {{overide: [llm]}}}} {HERE}",
    "unknown key 'permissions.services.overide'",
    "did you mean override?",
)

# --- settings ----------------------------------------------------------------------------------------


def option(name: str, lines: str, reason: str, mend: str) -> None:
    """Add a plugin that declares one setting, with these lines; where none of them is named, the setting is."""
    mark = "" if HERE in lines else HERE
    whole(name, f"configOptions:\n- key: extensions.NAME.size {mark}\n  label: Size\n{lines}", reason, mend)


option("option-type", f"  type: dial {HERE}", "found 'dial'", "'slider'")
option(
    "option-key-near", f"  type: string\n  defualtValue: x {HERE}", "'configOptions.0.defualtValue'", "defaultValue?"
)
option("option-default", "  type: number\n  defaultValue: many", "defaultValue must be a number", "a number")
option(
    "option-default-range",
    "  type: number\n  max: 5\n  defaultValue: 6",
    "defaultValue must be at most 5",
    "at most 5",
)
option("option-choices", "  type: select", "a select needs options", "such as [{value: a, label: A}]")
option("option-range", "  type: slider\n  max: 1\n  min: 2", "min 2 is above max 1", "above max")
option(
    "option-secret",
    "  type: password\n  defaultValue: hunter2",
    "a secret cannot have a default value",
    "everybody can read a manifest",
)
whole(
    "option-of-another",
    f"configOptions:\n- {{key: extensions.tavern-llm.models, type: json, label: x}} {HERE}",
    "the key 'extensions.tavern-llm.models' must begin with",
    "'extensions.option-of-another.'",
)
option(
    "option-twice",
    f"  type: string\n- {{key: extensions.NAME.size, label: Size, type: number}} {HERE}",
    "the key 'extensions.option-twice.size' stands there twice",
    "twice",
)

# --- permissions that do not exist -------------------------------------------------------------------

whole(
    "permission-hook",
    f"permissions:\n  hooks:\n  - hook:server:workflow:before-excute {HERE}",
    "there is no permission 'hook:server:workflow:before-excute'",
    "did you mean hook:server:workflow:before-execute",
)
whole(
    "permission-outlet",
    f"permissions:\n  ui:\n    inject:\n    - node:heder:right {HERE}",
    "there is no outlet 'node:heder:right'",
    "did you mean node:header:right",
)
whole(
    "permission-wrap",
    f"permissions:\n  ui:\n    wrap:\n    - ui:BasNode {HERE}",
    "there is no component 'ui:BasNode'",
    "did you mean ui:BaseNode",
)
whole(
    "permission-override",
    f"permissions:\n  ui:\n    override:\n    - ui:StatusBr {HERE}",
    "there is no component 'ui:StatusBr'",
    "did you mean ui:StatusBar",
)
whole(
    "permission-service",
    f"permissions:\n  services:\n    override:\n    - workflowManger {HERE}",
    "there is no service 'workflowManger'",
    "did you mean workflowManager",
)
whole(
    "permission-use",
    f"permissions:\n  services:\n    use:\n    - toolManager:excute {HERE}",
    "there is no permission 'toolManager:excute'",
    "did you mean toolManager:execute",
)
whole(
    "permission-event",
    f"permissions:\n  events:\n    subscribe:\n    - '*_ERROR' {HERE}",
    "found '*_ERROR'",
    "must be an event type such as NODE_ERROR",
)
whole(
    "namespace-core",
    "nodes:\n  entry: ./nodes\n  namespace: core",
    "nodes.namespace: 'core' is not the plugin's own",
    "leave it out",
    file=False,
)
whole(
    "publishes-foreign",
    f"publishes: {{services: [{{name: tavern-llm.more, interface: 'a:B'}}]}} {HERE}",
    "'tavern-llm.more' must be",
    "'publishes-foreign.'",
)

# --- a front end that cannot be: it alone is left out ------------------------------------------------


def frontend(name: str, text: str, reason: str, mend: str) -> None:
    """Add a plugin whose front end is wrong and whose code is right."""
    written = f"name: {name}\ndisplayName: x\nversion: 1.0.0\n{text}\n"
    says = Says(name, STARTED, reason, mend, "plugin.yaml", at="link")
    CORPUS.add(name, lambda inn: inn.folder(name, written, {"__init__.py": HEAD, "web/there.js": ""}), says)


frontend("frontend-type", f"frontend: ./web {HERE}", "frontend: input should be", "valid dictionary")
frontend("frontend-kind", f"frontend: {{type: react}} {HERE}", "found 'react'", "'vite' or 'vanilla'")
frontend("frontend-key", f"frontend: {{vanila: {{}}}} {HERE}", "unknown key 'frontend.vanila'", "vanilla?")
frontend(
    "frontend-empty", f"frontend: {{type: vite}} {HERE}", "a vite front end needs 'build'", "the rest of the plugin"
)
frontend(
    "frontend-gone", f"frontend: {{vanilla: {{entry: web/gone.js}}}} {HERE}", "there is no file", "name a file that is"
)
frontend(
    "frontend-outside",
    f"frontend: {{vanilla: {{entry: ../../x.js}}}} {HERE}",
    "found '../../x.js'",
    "must be a path inside the plugin's folder",
)
