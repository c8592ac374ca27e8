"""`plugin.yaml`: every mistake is told with its line and column, and no file can harm the host that reads it."""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from helpers.repetition import IN_ONE_TEST, Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_maker import host_with, make_plugin, problems_of, write

from tavern_host import Host
from tavern_host.contracts.manifest import ENTRY_FILES, Manifest
from tavern_host.contracts.plugins import PluginState, Problem
from tavern_host.plugins.manifest import read_manifest
from tavern_host.storage.yaml_file import MAX_BYTES, InvalidFile

NAMED = "name: acme\ndisplayName: Acme\n"
MINIMAL = NAMED + "version: 1.0.0\n"
OPTION = "configOptions:\n- {key: extensions.acme.size, label: Size"


def read(folder: Path, text: str | bytes) -> Manifest:
    """Read a text as the manifest of a folder named `acme`."""
    root = folder / "acme"
    root.mkdir(exist_ok=True)
    (root / "plugin.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    manifest, *_ = read_manifest(root)
    return manifest


def problems(folder: Path, text: str | bytes) -> list[Problem]:
    """Return the problems of a manifest."""
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


NO_YAML = "not valid YAML"
TAG = f"1:7: {NO_YAML}: the tag !!python/object/apply:os.system is not allowed; leave it out"
INSIDE = "must be a path inside the plugin's folder"
NO_TEXT = "version: input should be a valid string, found"
MISTAKES: list[tuple[str | bytes, str]] = [
    ("", "1:1: the key 'name' is missing"),
    ("# only a comment\n", "1:1: the key 'name' is missing"),
    ("- name: acme\n", "1:1: expected keys and values, found a list"),
    ("just text\n", "1:1: expected keys and values, found a text"),
    ("42\n", "1:1: expected keys and values, found a number"),
    (NAMED + "version: 1.0\n", f'3:1: {NO_TEXT} 1.0 (write it in quotes: "1.0")'),
    (NAMED + "version: 1.10\n", f'3:1: {NO_TEXT} 1.10 (write it in quotes: "1.10")'),
    (NAMED + "version: 2024-01-02\n", f'3:1: {NO_TEXT} 2024-01-02 (write it in quotes: "2024-01-02")'),
    (NAMED + "version: one\n", "3:1: version: must be a version such as 1.0.0, found 'one'"),
    (
        "name: Acme_Tools\n",
        "1:1: name: must be kebab-case: lower-case letters and digits, words joined by '-', found 'A",
    ),
    ("name: tavern-host\n", "1:1: name: must be another name; 'tavern-host' is the host itself"),
    (f"name: {'a' * 101}\n", "1:1: name: must be at most 100 characters, found 'aaaa"),
    ("name: acme\nname: acme2\n", "2:1: the key 'name' stands here twice (keep one of them)"),
    ("name: [acme\n", f"2:1: {NO_YAML}: expected ',' or ']', but got the end of the file"),
    (
        "name: a\n\tb: 1\n",
        f"2:1: {NO_YAML}: found character '\\t' that cannot start any token (indent with spaces, not",
    ),
    ("name: *nobody\n", f"1:7: {NO_YAML}: *nobody is an alias, and no &nobody comes before it (write a text with * in"),
    ("name: acme\n? [a]\n: b\n", f"2:3: {NO_YAML}: a key is a text; here it is a list, after '?' or in brackets"),
    ("? {a: b}\n: c\n", f"1:3: {NO_YAML}: a key is a text; here it is keys and values, after '?' or in brackets"),
    (
        "name: a\n---\nb: c\n",
        f"2:1: {NO_YAML}: a second document begins here (remove the line ---, or what follows it)",
    ),
    ("name: @x\n", f"1:7: {NO_YAML}: found character '@' that cannot start any token (write such a text in quotes)"),
    ("name: !!python/tuple [a]\n", f"1:7: {NO_YAML}: the tag !!python/tuple is not allowed; leave it out"),
    *((f"name: !!python/object/apply:os.system {value}\n", TAG) for value in ("[true]", "{a: b}", "true")),
    ("a: one: two\n", f"1:7: {NO_YAML}: mapping values are not allowed here (write a text that holds ': ' in quotes)"),
    (b"name: \xff\n", " the file is not UTF-8 text (byte 6)"),
    ("name: acme\nversion: 1\x00\n", "2:11: the character '\\x00' is not allowed"),
]
WRONG_LINES: list[tuple[str, ...]] = [
    ("hoks: []", "4:1: unknown key 'hoks'"),
    ("displayname: x", "4:1: unknown key 'displayname' (did you mean displayName?)"),
    ("permissions: {hooks: [], servces: {}}", "4:26: unknown key 'permissions.servces' (did you mean services?)"),
    ("permissions: {hooks: [], hooks: []}", "4:26: the key 'hooks' stands here twice (keep one of them)"),
    (
        "permissions: {services: {overide: [llm]}}",
        "4:26: unknown key 'permissions.services.overide' (did you mean override?)",
    ),
    ("apiVersion: newest", "4:1: apiVersion: must be a version range such as '>=0.1,<0.2', found 'newest'"),
    ("nodes: {entry: ../elsewhere}", f"4:9: nodes.entry: {INSIDE}, found '../elsewhere'"),
    ("tools: {entry: /etc}", f"4:9: tools.entry: {INSIDE}, found '/etc'"),
    ("tools: {entry: ''}", f"4:9: tools.entry: {INSIDE}, found ''"),
    (
        "runtime: {placement: moon}",
        "4:11: runtime.placement: input should be 'any', 'in-process' or 'process', found 'mo",
    ),
    (OPTION + ", type: number, defualtValue: 5}", "5:58: unknown key 'configOptions.0.defualtValue' (did you mean"),
    (
        OPTION + ", type: select, options: [{label: One, vlaue: 1}]}",
        "5:68: the key 'configOptions.0.options.0.value' is missing",
        "5:81: unknown key 'configOptions.0.options.0.vlaue' (did you mean value?)",
    ),
]


def test_a_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    with Failures() as failures:
        for text, *told in (*MISTAKES, *((f"{MINIMAL}{line}\n", *told) for line, *told in WRONG_LINES)):
            with failures.row(text):
                found = [str(problem) for problem in problems(tmp_path, text)]
                assert len(found) >= len(told) > 0
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
    hooks = [f"hook:server:workflow:before-{number}" for number in range(9_000)] + ["x" * 100_000, "a\nb"]
    told = linked(tmp_path, make_plugin(tmp_path, permissions={"hooks": hooks})).plugin("acme").problems
    assert len(told) == len(hooks)
    assert all("\n" not in str(problem) and len(str(problem)) < 1_000 for problem in told)


# --- what the manifest names and is not there ---------------------------------------------------------


def linked(tmp_path: Path, *folders: Path) -> Host:
    """Return a host that has read these manifests."""
    host = Host(tmp_path / "p", plugins=folders)
    host.link()
    return host


def test_node_modules_are_a_file_or_a_folder(tmp_path: Path) -> None:
    rows = [("./nodes", "nodes.py"), ("nodes.py", "nodes.py"), ("nodes", "nodes/a.py")]
    rows += [("inner/nodes", "inner/nodes/__init__.py"), ("nodes", f"nodes{EXTENSION_SUFFIXES[0]}"), (".", "")]
    rows += [("./nodes", ""), ("nodes.py", ""), ("inner/nodes", "")]
    folders = [make_plugin(tmp_path, f"acme{n}", nodes={"entry": entry}) for n, (entry, _) in enumerate(rows)]
    for folder, (_, file) in zip(folders, rows, strict=True):
        if file:
            write(folder / file, "")
    host = linked(tmp_path, *folders)
    with Failures() as failures:
        for folder, (entry, file) in zip(folders, rows, strict=True):
            with failures.row((entry, file)):
                missing = (
                    f"{folder.name}/plugin.yaml:7:3: nodes.entry: there is no {entry.removeprefix('./')!r} "
                    "(make this module or package in the plugin's folder, or leave `nodes` out)"
                )
                is_invalid = host.plugin(folder.name).state is PluginState.INVALID
                assert is_invalid is not bool(file)
                assert not is_invalid or problems_of(host, folder.name) == [missing]


def test_impossible_file_names_are_reported_as_missing(tmp_path: Path) -> None:
    for number, name in enumerate(("a\0b", "x" * 5_000, "plugin.yaml/x")):
        entry = {"entry": name}
        folder = make_plugin(tmp_path / f"{number}", tools=entry, frontend={"vanilla": entry}, nodes=entry)
        said = " ".join(problems_of(linked(tmp_path, folder)))
        for words in ("nodes.entry: there is no ", "tools.entry: there is no ", "frontend: there"):
            assert words in said, name


async def test_a_missing_folder_costs_only_its_contents(tmp_path: Path) -> None:
    kinds = ("tools", "workflows", "sample")
    folder = make_plugin(tmp_path, **{kind: {"entry": "./given"} for kind in kinds})
    write(folder / "other", "")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").state is PluginState.STARTED
        assert sorted(problems_of(host)) == sorted(
            f"acme/plugin.yaml:{7 + 2 * number}:3: {kind}.entry: there is no folder 'given' (make it in the plugin's "
            f"folder, or leave `{kind}` out; the rest of the plugin works)"
            for number, kind in enumerate(kinds)
        )
        (folder / "given").mkdir()
        await host.reload("acme")
        assert problems_of(host) == []


def unnamed(tmp_path: Path, folder: Path) -> list[str]:
    """Return the problems about folders that no entry names."""
    return [said for said in problems_of(linked(tmp_path, folder)) if "that no entry names" in said]


def test_a_folder_that_no_entry_names_is_reported_with_the_line_to_add(tmp_path: Path) -> None:
    files = {
        "nodes": "a.py",
        "tools": "deep/a.tool.json",
        "workflows": "a.json",
        "agents": "a.json",
        "knowledge": "a.json",
        "triggers": "a.json",
        "locale": "zh.json",
    }
    files["sample"] = "tavern.yaml"
    entries = {key for key, field in Manifest.model_fields.items() if "Entry" in str(field.annotation)}
    assert set(files) == set(ENTRY_FILES) == entries
    for key, file in files.items():
        folder = make_plugin(tmp_path / key)
        write(folder / key / "README.md", "")
        assert unnamed(tmp_path, folder) == []
        write(folder / key / file, "{}")
        assert unnamed(tmp_path, folder) == [
            f"acme/plugin.yaml:1:1: {key}: there is a folder '{key}' that no entry names, and nothing in it is used "
            f"(add the line `{key}: {{entry: ./{key}}}`, or rename the folder; the rest of the plugin works)"
        ]
        write(folder / "other" / "__init__.py", "")
        folder = make_plugin(tmp_path / key, **{key: {"entry": "./other"}})
        assert unnamed(tmp_path, folder) == []


def test_a_folder_that_a_hook_registers_needs_no_entry(tmp_path: Path) -> None:
    for key, permission in (("nodes", "hook:server:nodes:register"), ("tools", "hook:server:tools:discover")):
        folder = make_plugin(tmp_path / key, permissions={"hooks": [permission]})
        write(folder / "nodes" / "a.py", "")
        write(folder / "tools" / "a.tool.json", "{}")
        [other] = {"nodes", "tools"} - {key}
        assert [said.partition(": there")[0] for said in unnamed(tmp_path, folder)] == [
            f"acme/plugin.yaml:1:1: {other}"
        ]


def test_keys_that_begin_with_x_are_allowed_anywhere(tmp_path: Path) -> None:
    text = MINIMAL + "x-generator: {by: me}\npermissions: {x-why: because, services: {x-note: 1, use: []}}\n"
    assert read(tmp_path, text).permissions.services.use == []
    told = problems(tmp_path, MINIMAL + "x-generator: {by: me}\nhoks: 1\n")
    assert [(p.message, p.line) for p in told] == [("unknown key 'hoks'", 5)]


VANILLA = "{vanilla: {rootDir: ., entry: plugin.yaml}, "
FRONTENDS: list[tuple[str, ...]] = [
    (
        "{build: {entry: '', outputDir: a/../../b}}",
        f"20: frontend.build.entry: {INSIDE}, found ''",
        f"31: frontend.build.outputDir: {INSIDE}, found 'a/../../b'",
    ),
    ("{typ: vite}", "12: unknown key 'frontend.typ' (did you mean type?)"),
    ("[web]", "1: frontend: input should be"),
    (
        "{type: vite, dev: {entry: web/index.ts}}",
        "1: frontend: a vite front end needs 'build' (say under frontend.build which files a browser loads; the",
    ),
    ("{type: vanilla, vanilla: {}}", "27: frontend.vanilla: there is nothing to load (give an entry, or styles for a"),
    ("{build: {entry: dist/index.js}}", "20: frontend: there is no file 'dist/index.js' (build the front end first"),
    ("{vanilla: {styles: [gone.css]}}", "31: frontend: there is no file 'gone.css' (name a file that is there"),
    (
        "{vanilla: {rootDir: ., styles: [plugin.yaml]}, commands: [{id: go, title: Go}], mode: sandbox}",
        "58: frontend.commands: there is no code that it is of (give the front end an entry",
        "91: frontend.mode: there is no code that it is of (give the front end an entry",
        "91: frontend.mode: a sandboxed front end shows panels and nothing else (declare",
    ),
    (
        VANILLA + "panels: [{id: one, title: A}, {id: one, title: B}]}",
        "86: frontend.panels: the id 'one' stands there twice (give each its own",
    ),
    (
        VANILLA + "panels: [{id: No Id, title: A, place: top}]}",
        "65: frontend.panels.0.id: must be kebab-case",
        "86: frontend.panels.0.place: ",
    ),
    (
        VANILLA + "mode: sandbox}",
        "55: frontend.mode: a sandboxed front end shows panels and nothing else (declare",
    ),
    (
        VANILLA + "mode: sandbox, panels: [{id: a, title: A}]}\n"
        "permissions: {hooks: ['hook:client:auth:login'], ui: {wrap: ['ui:BaseNode']}}",
        "55: frontend.mode: a sandboxed front end cannot use ui:BaseNode (take `mode: page`",
    ),
]


def test_front_end_mistakes_cost_the_front_end_alone(tmp_path: Path) -> None:
    root = make_plugin(tmp_path)
    with Failures() as failures:
        for frontend, *told in FRONTENDS:
            with failures.row(frontend):
                (root / "plugin.yaml").write_text(MINIMAL + f"frontend: {frontend}\n")
                manifest, found, _ = read_manifest(root)
                assert (manifest.name, manifest.frontend.info("acme"), len(found)) == ("acme", None, len(told))
                for problem, expected in zip(found, told, strict=True):
                    assert str(problem).startswith(f"acme/plugin.yaml:4:{expected}")


def test_a_theme_has_styles_and_no_entry(tmp_path: Path) -> None:
    root = make_plugin(tmp_path, frontend={"type": "vanilla", "vanilla": {"styles": ["theme.css"]}})
    write(root / "web" / "theme.css", "")
    manifest, found, _ = read_manifest(root)
    info = manifest.frontend.info("acme")
    assert (found, info.entry_url, info.style_urls) == ([], None, ["/plugins/acme/theme.css"])


LAUGHS = "".join(f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True))
HOSTILE = ["!!int ''", "!!float ''", "!!bool maybe", "!!timestamp soon", "!!binary '***'", "2024-99-99", "9" * 10_000]
HOSTILE += ["&a [*a]", "!!set {a, b}", "[" * 5_000 + "]" * 5_000, "{a: " * 200 + "1" + "}" * 200]


def test_hostile_yaml_is_one_more_mistake(tmp_path: Path) -> None:
    texts = ["? [a, b]\n: c\n", "<<: {name: acme}\n", f"a: &a [x,x,x,x,x,x,x,x,x]\n{LAUGHS}"]
    with Failures() as failures:
        for text in (*texts, *(f"name: {value}\n" for value in HOSTILE)):
            with failures.row(text[:50]):
                assert {(p.file, p.line is None) for p in problems(tmp_path, text)} == {("acme/plugin.yaml", False)}


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


def test_an_odd_manifest_costs_that_plugin_alone(tmp_path: Path) -> None:
    kinds = ("directory", "fifo", "/dev/zero", "itself", "nowhere")
    folders = [make_plugin(tmp_path, f"acme{n}") for n in range(len(kinds))]
    for folder, kind in zip(folders, kinds, strict=True):
        file = folder / "plugin.yaml"
        file.unlink()
        if kind == "directory":
            file.mkdir()
        elif kind == "fifo":
            os.mkfifo(file)
        else:
            file.symlink_to(file if kind == "itself" else tmp_path / kind)
    host = linked(tmp_path, *folders, make_plugin(tmp_path, "good"))
    for folder, kind in zip(folders, kinds, strict=True):
        assert host.plugin(folder.name).state is PluginState.INVALID, kind
        assert "plugin.yaml" in problems_of(host, folder.name)[0], kind
    assert host.plugin("good").state is PluginState.DISCOVERED
