"""`plugin.yaml`: every mistake is told with its line and column, and no file can harm the host that reads it."""

from __future__ import annotations

import json
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from helpers.repetition import IN_ONE_TEST, Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_maker import host_with, make_plugin, problems_of, write

from tavern_host import Host
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.plugins import PluginState, Problem
from tavern_host.plugins.manifest import read_manifest
from tavern_host.storage.yaml_file import MAX_BYTES, InvalidFile

MINIMAL = "name: acme\ndisplayName: Acme\nversion: 1.0.0\n"
OPTION = "configOptions:\n  - key: extensions.acme.size\n    label: Size\n    type: number\n"


def read(folder: Path, text: str | bytes) -> Manifest:
    """Read a text as the manifest of a folder named `acme`."""
    root = folder / "acme"
    root.mkdir(exist_ok=True)
    (root / "plugin.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    manifest, *_ = read_manifest(root)
    return manifest


def problems(folder: Path, text: str | bytes) -> list[Problem]:
    """Return what is wrong with a manifest."""
    with pytest.raises(InvalidFile) as caught:
        read(folder, text)
    return caught.value.problems


def test_the_smallest_manifest_is_three_frozen_keys(tmp_path: Path) -> None:
    manifest = read(tmp_path, MINIMAL)
    assert (manifest.name, manifest.display_name, manifest.version) == ("acme", "Acme", "1.0.0")
    assert manifest.permissions.hooks == []
    assert manifest.api_version == ">=0.1"
    assert manifest.runtime.placement == "any"
    with pytest.raises(ValueError, match="frozen"):
        manifest.name = "other"  # type: ignore[misc]


FORBIDDEN_TAG = "1:7: not valid YAML: the tag !!python/object/apply:os.system is not allowed; leave it out"
MISTAKES: list[tuple[str | bytes, *tuple[str, ...]]] = [
    ("", "1:1: the key 'name' is missing"),
    ("# only a comment\n", "1:1: the key 'name' is missing"),
    ("- name: acme\n", "1:1: expected keys and values, found a list"),
    ("just text\n", "1:1: expected keys and values, found a text"),
    ("42\n", "1:1: expected keys and values, found a number"),
    (MINIMAL + "hoks: []\n", "4:1: unknown key 'hoks'"),
    (MINIMAL + "displayname: x\n", "4:1: unknown key 'displayname' (did you mean displayName?)"),
    (
        MINIMAL + "permissions:\n  hooks: []\n  servces: {}\n",
        "6:3: unknown key 'permissions.servces' (did you mean services?)",
    ),
    (
        MINIMAL + "permissions:\n  services: {overide: [llm]}\n",
        "5:14: unknown key 'permissions.services.overide' (did you mean override?)",
    ),
    (
        "name: acme\ndisplayName: Acme\nversion: 1.0\n",
        '3:1: version: input should be a valid string, found 1.0 (write it in quotes: "1.0")',
    ),
    (
        MINIMAL.replace("1.0.0", "1.10"),
        '3:1: version: input should be a valid string, found 1.10 (write it in quotes: "1.10")',
    ),
    (
        MINIMAL.replace("1.0.0", "2024-01-02"),
        '3:1: version: input should be a valid string, found 2024-01-02 (write it in quotes: "2024-01-02")',
    ),
    (MINIMAL.replace("1.0.0", "one"), "3:1: version: must be a version such as 1.0.0, found 'one'"),
    (
        MINIMAL.replace("name: acme", "name: Acme_Tools", 1),
        "1:1: name: must be kebab-case: lower-case letters and digits, words joined by '-', found 'Acme_Tools'",
    ),
    (
        "name: tavern-host\ndisplayName: x\nversion: 1.0.0\n",
        "1:1: name: must be another name; 'tavern-host' is the host itself",
    ),
    (MINIMAL.replace("acme", "a" * 101, 1), "1:1: name: must be at most 100 characters, found 'aaaa"),
    (MINIMAL + "apiVersion: newest\n", "4:1: apiVersion: must be a version range such as '>=0.1,<0.2', found 'newest'"),
    (
        MINIMAL + "nodes: {entry: ../elsewhere}\n",
        "4:9: nodes.entry: must be a path inside the plugin's folder, found '../elsewhere'",
    ),
    (MINIMAL + "tools: {entry: /etc}\n", "4:9: tools.entry: must be a path inside the plugin's folder, found '/etc'"),
    (MINIMAL + "tools: {entry: ''}\n", "4:9: tools.entry: must be a path inside the plugin's folder, found ''"),
    (
        MINIMAL + "runtime: {placement: moon}\n",
        "4:11: runtime.placement: input should be 'any', 'in-process' or 'process', found 'moon'",
    ),
    (
        MINIMAL + "configOptions:\n  - label: Size\n    key: extensions.other.size\n    type: number\n",
        "6:5: configOptions: the key 'extensions.other.size' must begin with 'extensions.acme.'",
    ),
    (
        MINIMAL + OPTION + "    defualtValue: 5\n",
        "8:5: unknown key 'configOptions.0.defualtValue' (did you mean defaultValue?)",
    ),
    (
        MINIMAL + OPTION.replace("number", "select") + "    options:\n    - {label: One, vlaue: 1}\n",
        "9:7: the key 'configOptions.0.options.0.value' is missing",
        "9:20: unknown key 'configOptions.0.options.0.vlaue' (did you mean value?)",
    ),
    ("name: acme\nname: acme2\n", "2:1: the key 'name' stands here twice (keep one of them)"),
    (MINIMAL + "permissions:\n  hooks: []\n  hooks: []\n", "6:3: the key 'hooks' stands here twice (keep one of them)"),
    ("name: [acme\n", "2:1: not valid YAML: expected ',' or ']', but got the end of the file"),
    (
        "name: acme\n\tversion: 1\n",
        "2:1: not valid YAML: found character '\\t' that cannot start any token (indent with spaces, not with tabs)",
    ),
    (
        "name: *nobody\n",
        "1:7: not valid YAML: *nobody is an alias, and no &nobody comes before it (write a text with * in quotes)",
    ),
    ("name: acme\n? [a]\n: b\n", "2:3: not valid YAML: a key is a text; here it is a list, after '?' or in brackets"),
    ("? {a: b}\n: c\n", "1:3: not valid YAML: a key is a text; here it is keys and values, after '?' or in brackets"),
    (
        "name: a\n---\nb: c\n",
        "2:1: not valid YAML: a second document begins here (remove the line ---, or what follows it)",
    ),
    (
        "name: @x\n",
        "1:7: not valid YAML: found character '@' that cannot start any token (write such a text in quotes)",
    ),
    ("name: !!python/tuple [a]\n", "1:7: not valid YAML: the tag !!python/tuple is not allowed; leave it out"),
    (
        "description: one: two\n",
        "1:17: not valid YAML: mapping values are not allowed here (write a text that holds ': ' in quotes)",
    ),
    *((f"name: !!python/object/apply:os.system {value}\n", FORBIDDEN_TAG) for value in ("[true]", "{a: b}", "true")),
    (b"name: \xff\n", " the file is not UTF-8 text (byte 6)"),
    ("name: acme\nversion: 1\x00\n", "2:11: the character '\\x00' is not allowed"),
]


def test_a_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    with Failures() as failures:
        for text, *told in MISTAKES:
            with failures.row(text):
                found = [str(problem) for problem in problems(tmp_path, text)]
                assert len(found) >= len(told)
                for line, expected in zip(found, told, strict=False):
                    assert line.startswith(f"acme/plugin.yaml:{expected}"), line


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "name: A\nversion: x\nhoks: 1\nnodes: {}\n"
    assert [(p.line, p.column) for p in problems(tmp_path, text)] == [(1, 1), (1, 1), (2, 1), (4, 1), (3, 1)]


def test_names_outside_the_plugins_own_are_located(tmp_path: Path) -> None:
    text = """\
configOptions:
- {key: extensions.acme.size, type: number, label: Size}
- {key: extensions.other.size, type: number, label: Size}
- {label: Size, key: extensions.acme.size, type: number}
publishes:
  services:
  - name: acme.index
    interface: contracts:Index
    permissions:
    - {name: 'acme.index:write', allows: Write.}
    - {name: 'other.index:write', allows: Write.}
  - name: other.index
    interface: contracts:Other
  hooks:
  - spec: contracts:other_hook
    permission: hook:plugin:other:hook
    allows: See.
"""
    told = problems(tmp_path, MINIMAL + text)
    assert [(p.line, p.column, p.message) for p in told] == [
        (6, 4, "configOptions: the key 'extensions.other.size' must begin with 'extensions.acme.'"),
        (7, 17, "configOptions: the key 'extensions.acme.size' stands there twice"),
        (14, 8, "publishes.services: 'other.index:write' must be 'acme.index:' and a word"),
        (15, 5, "publishes.services: 'other.index' must be 'acme.' and a camelCase word"),
        (18, 5, "publishes.hooks: 'contracts:other_hook' must be 'module:acme_…'"),
        (19, 5, "publishes.hooks: 'hook:plugin:other:hook' must be 'hook:plugin:acme:' and a word"),
    ]


def test_thousands_of_long_mistakes_are_told_in_lines(tmp_path: Path) -> None:
    root = tmp_path / "acme"
    root.mkdir()
    hooks = [f"hook:server:workflow:before-{number}" for number in range(9_000)] + ["x" * 100_000, "a\nb"]
    (root / "plugin.yaml").write_text(f"{MINIMAL}permissions: {{hooks: {json.dumps(hooks)}}}\n")
    host = Host(tmp_path / "p", plugins=[root])
    host.link()
    told = host.plugin("acme").problems
    assert len(told) == len(hooks)
    assert all("\n" not in str(problem) and len(str(problem)) < 1_000 for problem in told)


# --- what the manifest names and is not there ---------------------------------------------------------


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000, "plugin.yaml/x"])
def test_impossible_file_names_are_reported_as_missing(tmp_path: Path, name: str) -> None:
    folder = make_plugin(tmp_path, tools={"entry": name}, frontend={"vanilla": {"entry": name}}, nodes={"entry": name})
    host = Host(tmp_path / "p", plugins=[folder])
    host.link()
    said = " ".join(problems_of(host))
    assert all(words in said for words in ("nodes.entry: there is no ", "tools.entry: there is no ", "frontend: there"))


@pytest.mark.parametrize("entry", ["./nodes", "nodes.py", "inner/nodes", "."])
def test_without_its_node_modules_a_plugin_is_invalid(tmp_path: Path, entry: str) -> None:
    folder = make_plugin(tmp_path, nodes={"entry": entry})
    host = Host(tmp_path / "p", plugins=[folder])
    host.link()
    name = entry.removeprefix("./")
    assert host.plugin("acme").state is PluginState.INVALID
    assert problems_of(host) == [
        f"acme/plugin.yaml:7:3: nodes.entry: there is no {name!r} "
        "(make this module or package in the plugin's folder, or leave `nodes` out)"
    ]


@pytest.mark.parametrize(
    ("entry", "file"),
    [
        ("./nodes", "nodes.py"),
        ("nodes.py", "nodes.py"),
        ("nodes", "nodes/a.py"),
        ("inner/nodes", "inner/nodes/__init__.py"),
        ("nodes", f"nodes{EXTENSION_SUFFIXES[0]}"),
    ],
)
def test_node_modules_are_a_file_or_a_folder(tmp_path: Path, entry: str, file: str) -> None:
    folder = make_plugin(tmp_path, nodes={"entry": entry})
    write(folder / file, "")
    host = host_with(tmp_path / "p", folder)
    host.link()
    assert problems_of(host) == []


@pytest.mark.parametrize("kind", ["tools", "workflows", "sample"])
async def test_a_missing_folder_costs_only_its_contents(tmp_path: Path, kind: str) -> None:
    folder = make_plugin(tmp_path, **{kind: {"entry": "./given"}})
    write(folder / "other", "")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").state is PluginState.STARTED
        assert problems_of(host) == [
            f"acme/plugin.yaml:7:3: {kind}.entry: there is no folder 'given' (make it in the plugin's folder, or "
            f"leave `{kind}` out; the rest of the plugin works)"
        ]
        (folder / "given").mkdir()
        await host.reload("acme")
        assert problems_of(host) == []


def test_keys_that_begin_with_x_are_allowed_anywhere(tmp_path: Path) -> None:
    text = MINIMAL + "x-generator: {by: me}\npermissions: {x-why: because, services: {x-note: 1, use: []}}\n"
    assert read(tmp_path, text).permissions.services.use == []
    told = problems(tmp_path, MINIMAL + "x-generator: {by: me}\nhoks: 1\n")
    assert [(p.message, p.line) for p in told] == [("unknown key 'hoks'", 5)]


@pytest.mark.parametrize(
    ("frontend", "told"),
    [
        (
            "{build: {entry: '', outputDir: a/../../b}}",
            [
                "acme/plugin.yaml:4:20: frontend.build.entry: must be a path inside the plugin's folder, found ''",
                "acme/plugin.yaml:4:31: frontend.build.outputDir: must be a path inside the plugin's folder, "
                "found 'a/../../b'",
            ],
        ),
        ("{typ: vite}", ["acme/plugin.yaml:4:12: unknown key 'frontend.typ' (did you mean type?)"]),
        ("[web]", ["acme/plugin.yaml:4:1: frontend: input should be"]),
        (
            "{type: vite, dev: {entry: web/index.ts}}",
            [
                "acme/plugin.yaml:4:1: frontend: a vite front end needs 'build' (say under frontend.build which files "
                "a browser loads; the rest of the plugin works)"
            ],
        ),
        (
            "{type: vanilla, vanilla: {}}",
            ["acme/plugin.yaml:4:27: frontend.vanilla: there is nothing to load (give an entry, or styles for a theme"],
        ),
        (
            "{build: {entry: dist/index.js}}",
            ["acme/plugin.yaml:4:20: frontend: there is no file 'dist/index.js' (build the front end first"],
        ),
        (
            "{vanilla: {styles: [gone.css]}}",
            ["acme/plugin.yaml:4:31: frontend: there is no file 'gone.css' (name a file that is there"],
        ),
        (
            "{vanilla: {rootDir: ., styles: [plugin.yaml]}, commands: [{id: go, title: Go}], api: legacy}",
            [
                "acme/plugin.yaml:4:58: frontend.commands: there is no code that it is of (give the front end an entry",
                "acme/plugin.yaml:4:91: frontend.api: there is no code that it is of (give the front end an entry",
            ],
        ),
        (
            "{vanilla: {rootDir: ., entry: plugin.yaml}, panels: [{id: one, title: A}, {id: one, title: B}]}",
            ["acme/plugin.yaml:4:86: frontend.panels: the id 'one' stands there twice (give each its own"],
        ),
        (
            "{vanilla: {rootDir: ., entry: plugin.yaml}, panels: [{id: No Id, title: A, place: top}]}",
            [
                "acme/plugin.yaml:4:65: frontend.panels.0.id: must be kebab-case",
                "acme/plugin.yaml:4:86: frontend.panels.0.place: ",
            ],
        ),
        (
            "{vanilla: {rootDir: ., entry: plugin.yaml}, mode: sandbox, api: legacy}",
            [
                "acme/plugin.yaml:4:70: frontend.api: legacy is for code in the page (take `mode: page`",
                "acme/plugin.yaml:4:55: frontend.mode: a sandboxed front end shows panels and nothing else (declare",
            ],
        ),
        (
            "{vanilla: {rootDir: ., entry: plugin.yaml}, mode: sandbox, panels: [{id: a, title: A}]}\n"
            "permissions: {hooks: ['hook:client:auth:login'], ui: {wrap: ['ui:BaseNode']}}",
            ["acme/plugin.yaml:4:55: frontend.mode: a sandboxed front end cannot use ui:BaseNode (take `mode: page`"],
        ),
    ],
)
def test_front_end_mistakes_cost_the_front_end_alone(tmp_path: Path, frontend: str, told: list[str]) -> None:
    root = tmp_path / "acme"
    root.mkdir()
    (root / "plugin.yaml").write_text(MINIMAL + f"frontend: {frontend}\n")
    manifest, found, _ = read_manifest(root)
    assert manifest.name == "acme"
    assert manifest.frontend.info("acme") is None
    assert len(found) == len(told)
    for problem, expected in zip(found, told, strict=True):
        assert str(problem).startswith(expected)


def test_a_theme_has_styles_and_no_entry(tmp_path: Path) -> None:
    root = tmp_path / "acme"
    (root / "web").mkdir(parents=True)
    (root / "web" / "theme.css").write_text("")
    (root / "plugin.yaml").write_text(MINIMAL + "frontend: {type: vanilla, vanilla: {styles: [theme.css]}}\n")
    manifest, found, _ = read_manifest(root)
    assert found == []
    info = manifest.frontend.info("acme") if manifest.frontend else None
    assert (info.entry_url, info.style_urls) == (None, ["/plugins/acme/theme.css"])


@pytest.mark.parametrize(
    "text",
    [
        "name: !!int ''\n",
        "name: !!float ''\n",
        "name: !!bool maybe\n",
        "name: !!timestamp soon\n",
        "name: !!binary '***'\n",
        "name: 2024-99-99\n",
        f"name: {'9' * 10_000}\n",
        "? [a, b]\n: c\n",
        "name: &a [*a]\n",
        "<<: {name: acme}\n",
        "name: !!set {a, b}\n",
        "name: " + "[" * 5_000 + "]" * 5_000,
        "name: " + "{a: " * 200 + "1" + "}" * 200,
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)),
    ],
)
def test_hostile_yaml_is_one_more_mistake(tmp_path: Path, text: str) -> None:
    for problem in problems(tmp_path, text):
        assert problem.file == "acme/plugin.yaml"
        assert problem.line is not None


YAML_PIECES = st.sampled_from(
    [
        *("name: acme\n", "version: 1.0.0\n", "displayName: A\n", "permissions:\n", "  hooks: "),
        *("&a ", "*a", ": ", "- ", "? ", "<<: ", "|\n", "---\n", "  ", *"[]{}'\"\n\t#~\x00\ud800\u2028"),
        *("!!int ", "!!timestamp ", "!!binary ", "!!set ", "%YAML 1.1\n"),
        *("1e999", "0x_", "0b", "1:2:3", "2024-13-01", ".nan"),
    ]
)


@settings(max_examples=repetitions(40, 300), deadline=None, suppress_health_check=IN_ONE_TEST)
@given(st.lists(YAML_PIECES | st.text(max_size=5), max_size=25).map("".join) | st.binary(max_size=60))
def test_any_text_is_a_manifest_or_has_mistakes(tmp_path: Path, text: str | bytes) -> None:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        read(tmp_path, data)
    except InvalidFile as error:
        assert error.problems
        assert all(p.message and p.file == "acme/plugin.yaml" for p in error.problems)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, MINIMAL + "#" * MAX_BYTES)
    assert problem.message == "the file is larger than 1024 KiB"


@pytest.mark.parametrize("kind", ["directory", "fifo", "device", "loop", "dangling"])
def test_an_odd_manifest_costs_that_plugin_alone(tmp_path: Path, kind: str) -> None:
    folder = make_plugin(tmp_path / "plugins")
    file = folder / "plugin.yaml"
    file.unlink()
    match kind:
        case "directory":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "loop":
            file.symlink_to(file)
        case _:
            file.symlink_to(tmp_path / "nowhere")
    make_plugin(tmp_path / "plugins", "good")
    host = Host(tmp_path / "p", plugins=[folder, tmp_path / "plugins" / "good"])
    host.link()
    assert host.plugin("acme").state is PluginState.INVALID
    assert "plugin.yaml" in str(host.plugin("acme").problems[0])
    assert host.plugin("good").state is PluginState.DISCOVERED
