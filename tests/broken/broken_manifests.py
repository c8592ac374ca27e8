"""Broken plugins whose `plugin.yaml` cannot be read, or says what cannot be."""

from __future__ import annotations

from base_project import HEAD, HERE, TELLS, BaseProject
from broken_plugins import INCOMPATIBLE, INVALID, STARTED, Corpus, Says

CORPUS = Corpus()
CODE = {"__init__.py": TELLS}


def manifest(name: str, text: str | bytes, reason: str, mend: str) -> None:
    """Add a plugin with a manifest as it is; `NAME` in it stands for the plugin's name."""
    written = text.replace("NAME", name) if isinstance(text, str) else text.replace(b"NAME", name.encode())
    says = Says(name, INVALID, reason, mend, "plugin.yaml", at="link")
    CORPUS.add(name, lambda inn: inn.folder(name, written, CODE), says)


def whole(name: str, lines: str, reason: str, mend: str) -> None:
    """Add a plugin whose manifest has all that it needs, and these lines."""
    manifest(name, f"name: NAME\ndisplayName: x\nversion: 1.0.0\n{lines}\n", reason, mend)


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


def as_device(inn: BaseProject) -> None:
    root = inn.folder("yaml-is-device", None, CODE, at=inn.elsewhere / "yaml-is-device")
    (root / "plugin.yaml").symlink_to("/dev/zero")


CORPUS.add("yaml-is-device", as_device, Says("yaml-is-device", INVALID, "it is not a file", "not a file", at="link"))
CORPUS.add(
    "yaml-missing",
    lambda inn: inn.folder("yaml-missing", None, CODE),
    Says("yaml-missing", INVALID, "there is no plugin.yaml", "every plugin needs one", at="link"),
)

# --- names, versions, values of the wrong type, unknown keys and permissions --------------------------

manifest("no-name", f"displayName: x {HERE}\nversion: 1.0.0\n", "the key 'name' is missing", "'name'")
MEND = "install a version of api-future for tavern-host"
CORPUS.add(
    "api-future",
    lambda inn: inn.code("api-future", TELLS, apiVersion=">=99"),
    Says("api-future", INCOMPATIBLE, "it is made for tavern-host >=99", MEND, at="link"),
)
for key, line, expected in (
    ("requires.plugins", "requires: {plugins: [a]}", "should be a valid dictionary"),
    ("nodes", "nodes: ./nodes", "should be a valid dictionary"),
    ("permissions.hooks.0", "permissions: {hooks: [{a: b}]}", "should be a valid string"),
    ("permissions.services.use", "permissions: {services: {use: a}}", "should be a valid list"),
):
    whole(f"type-{key.replace('.', '-')}", f"{line} {HERE}", f"{key}: input should be", expected)
whole("key-near", f"displayname: x {HERE}", "unknown key 'displayname'", "did you mean displayName?")
OPTION = "configOptions:\n- key: extensions.NAME.size {}\n  label: Size\n  {}"
whole("option-type", OPTION.format("", f"type: dial {HERE}"), "found 'dial'", "'slider'")
PASSWORD = OPTION.format(HERE, "type: password\n  defaultValue: hunter2")
whole("option-secret", PASSWORD, "a secret cannot have a default value", "everybody can read a manifest")
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
GONE = f"name: frontend-gone\ndisplayName: x\nversion: 1.0.0\nfrontend: {{vanilla: {{entry: web/gone.js}}}} {HERE}\n"
CORPUS.add(
    "frontend-gone",  # which costs its front end alone
    lambda inn: inn.folder("frontend-gone", GONE, {"__init__.py": HEAD, "web/there.js": ""}),
    Says("frontend-gone", STARTED, "there is no file", "name a file that is", "plugin.yaml", at="link"),
)
