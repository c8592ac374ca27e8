"""The rules of `tavern plugins check`, each with what it finds and what it leaves alone."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures, repetitions

from tavern_devtools.rules import FAULTS, OF_ROOMS, OF_THE_HOST, RULES, findings
from tavern_devtools.rules.moved_import import CALLED, MODULES, NAMES, RENAMED
from tavern_devtools.rules.subject import Subject
from tavern_host import Host

ROOT = Path(__file__).parents[2]
BASE: dict[str, Any] = {"description": "Does something."}
ASYNC = (
    "import asyncio, time, subprocess as sp\nfrom time import sleep as nap\nimport urllib.request\nimport requests\n"
)


def found(host: Host, folder: Path) -> list[tuple[str | None, int | None]]:
    """Return the rules that find something in a plugin of a host, with the lines."""
    (info,) = (info for info in host.plugins() if host.folder(info) == folder.resolve())
    return [(one.rule, one.line) for one in findings(Subject(folder, info))]


def test_each_rule_has_a_page_and_a_sentence() -> None:
    names = [rule.replace("_", "-") for rule in (*OF_THE_HOST, *OF_ROOMS, *FAULTS, *RULES)]
    assert {path.stem for path in (ROOT / "docs" / "checks").glob("*.md")} == set(names)
    for name in names:
        text = (ROOT / "docs" / "checks" / f"{name}.md").read_text(encoding="utf-8")
        assert f"names this rule `{name}`" in text
        assert all(f"**{part}:**" in text for part in ("Why", "Wrong", "Right", "What to do"))


def test_rules_find_what_they_say(tmp_path: Path) -> None:
    vue = {"web/a.js": "const x={__v_isVNode:!0}"}
    frontend = {"frontend": {"type": "vanilla", "vanilla": {"entry": "./web/a.js"}}}
    option = {"key": "extensions.acme-1.a", "type": "string", "label": "A"}
    hook = {"permissions": {"hooks": ["hook:server:workflow:before-execute"]}}
    use = {"permissions": {"services": {"use": ["projectFiles:read"]}}}
    rows: list[tuple[str, dict[str, str], dict[str, Any], list[tuple[str, int | None]]]] = [
        ("no description", {}, {"description": ""}, [("description", None)]),
        ("an option", {}, {"configOptions": [option]}, [("description", None)]),
        ("time.sleep", {"a.py": f"{ASYNC}async def f():\n    time.sleep(1)\n"}, {}, [("blocking-call", 6)]),
        ("under another name", {"a.py": f"{ASYNC}async def f():\n    nap(1)\n"}, {}, [("blocking-call", 6)]),
        ("subprocess", {"a.py": f"{ASYNC}async def f():\n    x = [sp.run(['a'])]\n"}, {}, [("blocking-call", 6)]),
        ("urlopen", {"a.py": f"{ASYNC}async def f():\n    urllib.request.urlopen('a')\n"}, {}, [("blocking-call", 6)]),
        (
            "requests",
            {"a.py": f"{ASYNC}class A:\n  async def f(s):\n    requests.get('a')\n"},
            {},
            [("blocking-call", 7)],
        ),
        ("awaited", {"a.py": f"{ASYNC}async def f():\n    await asyncio.sleep(1)\n"}, {}, []),
        ("a plain function", {"a.py": f"{ASYNC}def f():\n    time.sleep(1)\n"}, {}, []),
        ("a thread", {"a.py": f"{ASYNC}async def f():\n    await asyncio.to_thread(lambda: time.sleep(1))\n"}, {}, []),
        ("another sleep", {"a.py": "from asyncio import sleep\nasync def f(time):\n    time.sleep(sleep)\n"}, {}, []),
        ("a hook without code", {"__init__.py": ""}, hook, [("unused-permission", None)]),
        ("a hook", {"a.py": "def tavern_before_execute(request): ..."}, hook, []),
        ("a service without code", {"__init__.py": ""}, use, [("unused-permission", None)]),
        ("a service", {"a.py": "from tavern_host import PROJECT_FILES"}, use, []),
        ("a service of a tool", {"tools/a.tool.json": '{"service": "projectFiles"}'}, use, []),
        ("a Vue", vue, frontend, [("second-vue", None)]),
        ("no front end", vue, {}, []),
        ("a node", {"a.py": "@node(category='x')\ndef a(): ..."}, {}, [("described-nodes", 2)]),
        ("a module", {"a.py": "from tavern_host.contracts.llm import LlmRequest"}, {}, [("moved-import", 1)]),
        ("a name", {"a.py": "from tavern_host.contracts.tools import ToolManager as T"}, {}, [("moved-import", 1)]),
        ("whole modules", {"a.py": "from tavern_host.contracts import llm, tools"}, {}, [("moved-import", 1)]),
        ("imported plainly", {"a.py": "import os, tavern_host.contracts.work"}, {}, [("moved-import", 1)]),
        ("another name", {"a.py": "from tavern_host.contracts.wire import carried"}, {}, [("moved-import", 1)]),
        ("what stayed", {"a.py": "from tavern_host.contracts.tools import ToolDefinition"}, {}, []),
        ("what is elsewhere", {"a.py": "from tavern_llm.api.llm import LlmRequest"}, {}, []),
        ("a described node", {"a.py": "@node(description='x')\ndef a(): ...\n@node\ndef b():\n  'x'\n"}, {}, []),
        ("no Python", {"a.py": "def ("}, {}, []),
    ]
    folders = []
    for number, (_, files, manifest, _) in enumerate(rows):
        folders.append(write_plugin(tmp_path / f"acme_{number}", files, **{**BASE, **manifest}))
    host = Host(tmp_path / "inn", plugins=folders)
    host.link()
    with Failures() as failures:
        for (name, _, _, expected), folder in zip(rows, folders, strict=True):
            with failures.row(name):
                assert found(host, folder) == expected


def test_no_rule_is_wrong_about_plugins_that_are_in_order(tmp_path: Path) -> None:
    contributed = [path.parent for path in sorted(ROOT.glob("contrib/*/*/plugin.yaml"))]
    host = Host(tmp_path / "inn", plugins=contributed)
    host.link()
    ours = [path.parent for path in sorted(ROOT.glob("plugins/*/plugin.yaml"))][:: repetitions(6, 1)]
    with Failures() as failures:
        for folder in [*contributed, *ours]:
            with failures.row(folder.name):
                assert found(host, folder) == []


def test_findings_name_their_rule_in_the_terminal(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "acme", {}, description="")
    ran = tavern("plugins", "check", folder, "--no-import")
    assert ran.code == 0
    assert "operators read first [description]" in ran.out
    broken = write_plugin(tmp_path / "acme_2", {}, apiVersion="twelve")
    assert "[manifest]" in tavern("plugins", "check", broken).out
    hook = {"__init__.py": "from tavern_host import hookimpl\n@hookimpl\ndef tavern_on_logins(): ...\n"}
    unknown = tavern("plugins", "check", write_plugin(tmp_path / "acme_3", hook))
    assert "[hooks]" in unknown.out and "did you mean tavern_on_login" in unknown.out
    head = "from tavern_host import *\nfrom tavern_tools.api.macros import *\ndef summer(): ...\n@hookimpl\n"
    item = "PromptMacroInfo(name='a', handler=__name__ + ':sumer')"
    code = f"{head}def tavern_register_prompt_macros(): return [{item}]\n"
    hooks = {"hooks": ["hook:server:prompts:register-macros"]}
    misspelt = write_plugin(tmp_path / "acme_4", {"__init__.py": code}, permissions=hooks)
    assert "(did you mean summer?)" in tavern("plugins", "check", misspelt).out


def test_every_moved_name_is_where_the_rule_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "upgrading.md").read_text(encoding="utf-8")
    homes = [(f"{package}.{name}", "") for package, names in MODULES.items() for name in names.split()]
    homes += [(f"tavern_host.contracts.{name}", "") for name in RENAMED.values()]
    homes += [(home, name) for (_, home), names in NAMES.items() for name in names.split()]
    for home, name in homes:
        assert not name or hasattr(importlib.import_module(home), name)
        assert f"`{home}`" in page or f"`{home.rpartition('.')[2]}`" in page
        assert not name or f"{name}`" in page
    for (module, _), name in CALLED.items():
        assert hasattr(importlib.import_module(f"tavern_host.contracts.{RENAMED.get(module, module)}"), name)
        assert f"{name}`" in page
