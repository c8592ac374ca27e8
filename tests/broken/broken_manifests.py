"""Broken plugins whose `plugin.yaml` cannot be read, or says what cannot be."""

from __future__ import annotations

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
whole("yaml-twice", f"displayName: y {HERE}", "the key 'displayName' stands here twice", "keep one of them")
manifest(
    "yaml-laughs",
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)),
    "too many values",
    "aliases must not repeat",
)
manifest("yaml-latin", "name: NAME\ndescription: caf\u00e9\n".encode("latin-1"), "not UTF-8 text", "UTF-8")
manifest("yaml-empty", "", "the key 'name' is missing", "'name'")
manifest("yaml-tag", f"name: !!python/name:os.system x {HERE}\n", "python/name:os.system", "tag")

# --- what is no file ---------------------------------------------------------------------------------


def odd_file(name: str, make: Callable[[Inn], object], reason: str, mend: str) -> None:
    """Add a plugin that has something else in the place of its manifest."""
    CORPUS.add(name, make, Says(name, INVALID, reason, mend, at="link"))


def as_device(inn: Inn) -> None:
    root = inn.folder("yaml-is-device", None, CODE, at=inn.elsewhere / "yaml-is-device")
    (root / "plugin.yaml").symlink_to("/dev/zero")
    inn.dev.append(root)


odd_file("yaml-is-device", as_device, "it is not a file", "a file")
odd_file(
    "yaml-missing",
    lambda inn: inn.folder("yaml-missing", None, CODE),
    "there is no plugin.yaml",
    "every plugin needs one",
)

# --- names and versions ------------------------------------------------------------------------------

manifest("no-name", f"displayName: x {HERE}\nversion: 1.0.0\n", "the key 'name' is missing", "'name'")
manifest(
    "name-not-kebab",
    f"name: Not_Kebab {HERE}\ndisplayName: x\nversion: 1.0.0\n",
    "found 'Not_Kebab'",
    "must be kebab-case",
)
manifest(
    "version-float",
    f"name: NAME\ndisplayName: x\nversion: 1.0 {HERE}\n",
    "version: input should be a valid string",
    'write it in quotes: "1.0"',
)
whole(
    "api-future",
    "apiVersion: '>=99'",
    "it is made for tavern-host >=99",
    "install a version of api-future for tavern-host",
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

# --- values of the wrong type ------------------------------------------------------------------------

for key, line, expected in (
    ("displayName", "displayName: [a]", "should be a valid string"),
    ("requires.plugins", "requires: {plugins: [a]}", "should be a valid dictionary"),
    ("runtime.placement", "runtime: {placement: moon}", "should be 'any', 'in-process' or 'process'"),
    ("nodes", "nodes: ./nodes", "should be a valid dictionary"),
    ("configOptions", "configOptions: {a: b}", "should be a valid list"),
    ("permissions.hooks.0", "permissions: {hooks: [{a: b}]}", "should be a valid string"),
    ("permissions.services.use", "permissions: {services: {use: a}}", "should be a valid list"),
    ("publishes", "publishes: [a]", "should be a valid dictionary"),
):
    name = "type-" + "-".join(key.split(".")).replace("N", "-n").replace("V", "-v").replace("O", "-o")
    needed = "" if key == "displayName" else "displayName: x\n"
    text = f"name: NAME\n{needed}version: 1.0.0\n{line} {HERE}\n"
    manifest(name, text, f"{key}: input should be", expected)

# --- keys that are not known -------------------------------------------------------------------------

whole("key-near", f"displayname: x {HERE}", "unknown key 'displayname'", "did you mean displayName?")
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
    "option-secret",
    "  type: password\n  defaultValue: hunter2",
    "a secret cannot have a default value",
    "everybody can read a manifest",
)

# --- permissions that do not exist -------------------------------------------------------------------

whole(
    "permission-hook",
    f"permissions:\n  hooks:\n  - hook:server:workflow:before-excute {HERE}",
    "there is no permission 'hook:server:workflow:before-excute'",
    "did you mean hook:server:workflow:before-execute",
)
whole(
    "permission-event",
    f"permissions:\n  events:\n    subscribe:\n    - '*_ERROR' {HERE}",
    "found '*_ERROR'",
    "must be an event type such as NODE_ERROR",
)

# --- a front end that cannot be: it alone is left out ------------------------------------------------


def frontend(name: str, text: str, reason: str, mend: str) -> None:
    """Add a plugin whose front end is wrong and whose code is right."""
    written = f"name: {name}\ndisplayName: x\nversion: 1.0.0\n{text}\n"
    says = Says(name, STARTED, reason, mend, "plugin.yaml", at="link")
    CORPUS.add(name, lambda inn: inn.folder(name, written, {"__init__.py": HEAD, "web/there.js": ""}), says)


frontend("frontend-key", f"frontend: {{vanila: {{}}}} {HERE}", "unknown key 'frontend.vanila'", "vanilla?")
frontend(
    "frontend-gone", f"frontend: {{vanilla: {{entry: web/gone.js}}}} {HERE}", "there is no file", "name a file that is"
)
