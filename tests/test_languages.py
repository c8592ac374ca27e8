"""In which language the host speaks to a person: in that of the terminal, or of the browser."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from documentation.pages import ROOT
from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.cli.arguments import group
from tavern_host.cli.descriptors import host_commands
from tavern_host.contracts.errors import HTTP_STATUS
from tavern_host.contracts.languages import LANGUAGES, Catalogue, of_browser, of_terminal
from tavern_host.contracts.plugins import PluginState
from tavern_host.runtime.installed import catalogue
from tavern_host.testing.http import served

HAN = re.compile("[\u4e00-\u9fff]")
FILES = {path.parents[1]: path for path in ROOT.glob("*/messages/zh.json")}
FILES |= {path.parents[1]: path for path in ROOT.glob("plugins/*/messages/zh.json")}


def test_a_terminal_has_the_language_of_its_locale() -> None:
    rows = [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "de_DE"}, "en"),
        ({"LANG": "en_GB", "LC_ALL": "zh"}, "zh"),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "fr:zh_TW:en"}, "zh"),
        ({"LANG": "C", "LANGUAGE": "zh"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zhuang"}, "en"),
    ]
    with Failures() as failures:
        for environment, language in rows:
            with failures.row(str(environment)):
                assert of_terminal(environment) == language


def test_a_browser_says_which_language_it_wants_most() -> None:
    rows = [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.5", "en"),
        ("de,fr;q=0.9,zh-Hant;q=0.1", "zh"),
        ("zh;q=0, en;q=0.1", "en"),
        ("zh;q=much, *;q=0.3", "en"),
        (",;;q=,=,zh;q=0.7", "zh"),
        ("x" * 10_000 + ",zh", "en"),
    ]
    with Failures() as failures:
        for accepted, language in rows:
            with failures.row(accepted[:50]):
                assert of_browser(accepted) == language


def test_what_stands_in_a_message_is_kept() -> None:
    chinese = Catalogue(
        "zh",
        {
            "Error: {}": "错误：{}",
            "{} is {}": "{} 是 {}",
            "{} before {}": "{2} 之后 {1}",
            "started": "已启动",
            "no {} in {}": "{} 不在 {} 中",
        },
    )
    rows = [
        ("started", "已启动"),
        ("Error: acme is started", "错误：acme 是 已启动"),
        ("one before two", "two 之后 one"),
        ("no {x} in {}", "{x} 不在 {} 中"),
        ("Error: ", "Error: "),
        ("Error: " + "x" * 5_000, "Error: " + "x" * 5_000),
        ("something else", "something else"),
        ("", ""),
    ]
    with Failures() as failures:
        for text, said in rows:
            with failures.row(text[:50]):
                assert chinese.say(text) == said
    assert Catalogue().say("Error: acme is started") == "Error: acme is started"


async def test_what_is_met_first_is_there_in_chinese(tmp_path: Path) -> None:
    chinese = catalogue("zh")
    async with Host(tmp_path / "project", third_party=False) as host:
        commands = [*host_commands().values(), *(one.info for one in host.registrations.commands.values())]
        asked = [p.description for plugin in host.plugins() for p in plugin.permissions]
        asked += [permission.description for permission in host._manager.report.permissions()]
        about = [text for plugin in host.plugins() for text in (plugin.description, plugin.display_name)]
    helps = [text for one in commands for text in (one.help, *(parameter.help for parameter in one.parameters))]
    helps += [option.help for option in group([]).params if hasattr(option, "help")]
    titles = [HTTPStatus(status).phrase for status in {*HTTP_STATUS.values(), 401, 405, 408, 413, 415, 421, 500}]
    states = [state.value for state in PluginState]
    met = {text for text in (*helps, *asked, *about, *titles, *states) if text}
    assert len(met) > 300
    missing = {text for text in met if not HAN.search(chinese.say(text))}
    assert missing == set(), "write them into messages/zh.json of the package that says them"

    with Failures() as failures:
        for package, file in FILES.items():
            said = met | said_by(package).texts
            for text, translation in json.loads(file.read_text(encoding="utf-8")).items():
                with failures.row(f"{package.name}: {text}"):
                    assert "{}{}" not in text, "nobody knows where the one ends"
                    assert not text.count("{}") or translation.format(*"abcdef"), "its places are those of the text"
                    assert package.name == "tavern_host" or text in said, "nobody says so any more"
    languages = {f"{language}.json" for language in LANGUAGES if language != "en"}
    assert {path.name for path in (ROOT / "tavern_host" / "messages").iterdir()} == languages


def _texts(*parts: ast.AST) -> Iterator[str]:
    """Yield the texts that these parts of code may be, with `{}` for what is put into them."""
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.JoinedStr):
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in part.values)
            yield re.sub(r"(\{\})+", "{}", text)
        elif isinstance(part, ast.IfExp):
            yield from _texts(part.body, part.orelse)


class Said(NamedTuple):
    """The texts of a package, the lines for a person that its commands say, and the headings of their tables."""

    texts: set[str]
    lines: set[str]
    headings: set[str]


@cache
def said_by(package: Path) -> Said:
    said = Said(set(), set(), set())
    for file in package.rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            texts = set(_texts(part))
            lines = {line.strip() for text in texts for line in text.splitlines()}
            said.texts.update(
                texts, lines, (line.removesuffix("{}") for line in lines)
            )  # what may be absent at the end
            said.lines.update(_lines_of_command(part))
            said.headings.update(_headings(part))
    return said


def _lines_of_command(part: ast.AST) -> Iterator[str]:
    if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "CommandOutput":
        keywords = {keyword.arg: keyword.value for keyword in part.keywords}
        kind = keywords.get("kind")
        if isinstance(kind, ast.Constant) and kind.value in ("message", "progress", "failure"):
            yield from (line for text in _texts(keywords["text"]) for line in text.splitlines())


def _headings(part: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(part, ast.Assign):
        names = [target.id for target in part.targets if isinstance(target, ast.Name)]
    elif isinstance(part, ast.keyword):
        names = [part.arg or ""]
    if isinstance(part, ast.Assign | ast.keyword) and isinstance(part.value, ast.List | ast.Tuple):
        yield from _texts(*part.value.elts) if {"columns", "_COLUMNS"} & {*names} else ()


def test_lines_of_commands_are_there_in_chinese() -> None:
    chinese = catalogue("zh")
    headings = {heading for package in FILES for heading in said_by(package).headings} - {"", "ms"}
    assert {heading for heading in headings if not HAN.search(chinese.say(heading))} == set()
    lines = {line for package in FILES for line in said_by(package).lines}
    assert len(lines) > 80
    with Failures() as failures:
        for line in lines:
            short = re.sub(r"(?<=\w)\{\}", "", line)  # `{name} is removed{why}.`
            if len(re.findall(r"[A-Za-z]{2,}", line)) > 1:
                with failures.row(line):
                    assert any(HAN.search(chinese.say(text.replace("{}", "x"))) for text in (line, short))


def test_problems_are_translated_with_their_places() -> None:
    chinese = catalogue("zh")
    rows = [
        ("the body: $.enabled: Input should be a valid boolean", "请求体: $.enabled: 应为布尔值"),
        (
            "the query: $.limit: Input should be greater than 0; $.x: Extra inputs are not permitted",
            "查询参数: $.limit: 应大于 0; $.x: 不允许有此字段",
        ),
        ("the body is not JSON: line 1, column 2: Expecting value", "请求体 不是 JSON：第 1 行第 2 列：此处应有一个值"),
        ("$.nodes[3].type: there is no node type 'x' (node 'n')", "$.nodes[3].type: 没有节点类型 'x'（节点 'n'）"),
        ("$.inputs.x: a workflow has no input 'x'; it has none", "$.inputs.x: a workflow 没有输入 'x'; 它有 none"),
        ("; ".join(["a: b"] * 1000), "; ".join(["a: b"] * 1000)),
    ]
    with Failures() as failures:
        for text, said in rows:
            with failures.row(text[:50]):
                assert chinese.say(text) == said


def test_the_command_line_speaks_the_language_of_the_terminal(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    chinese = {"LC_ALL": "zh_CN.UTF-8"}
    assert tavern("init", "--empty", project, **chinese).out.startswith(f"已在 {project} 中新建项目\n")

    shown = tavern("serve", "--help", **chinese).out
    assert "用法： tavern serve [OPTIONS]" in shown and "在本机运行宿主及其网页。" in shown
    assert "端口；0 表示任选一个空闲端口。  [默认值：8188]" in shown.replace("默认值： ", "默认值：")
    assert tavern("--project", project, "plugins", "show", "acme", **chinese).error == "错误：没有插件 'acme'"
    assert "错误：没有命令 'plugin'" in tavern("plugin", **chinese).err
    assert tavern("init", project, **chinese).error == f"错误：{project} 已经是项目"

    wrong = {"name": "w", "nodes": [{"id": "n", "type": "no:Such", "position": {"x": 0, "y": 0}}], "edges": []}
    (project / "workflows" / "w.json").write_text(json.dumps(wrong), encoding="utf-8")
    checked = tavern("--project", project, "workflow", "check", "w", **chinese)
    assert checked.out == "$.nodes[0].type: 没有节点类型 'no:Such'（节点 'n'）\n"
    assert checked.error == "错误：w 有 1 个问题"
    granted = tavern("--project", project, "plugins", "show", "tavern-studio", **chinese).out
    assert "应答属于它自己的 HTTP 请求和套接字消息。" in granted and "已发现" in granted
    data = tavern("--project", project, "plugins", "show", "tavern-studio", "--json", **chinese).json()
    assert data == tavern("--project", project, "plugins", "show", "tavern-studio", "--json").json() | {
        "timings": data["timings"]
    }, "what programs read is the same in every language"


async def test_the_server_speaks_the_language_of_the_browser(tmp_path: Path) -> None:
    write_plugin(tmp_path / "project" / "plugins" / "ahoy", description="Run workflows.")
    chinese = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}
    async with Host(tmp_path / "project") as host, served(host) as site:
        problem = await (await site.get("/api/nowhere", headers=chinese)).json()
        assert (problem["title"], problem["code"]) == ("未找到", "not_found")
        assert problem["detail"] == problem["error"] == problem["message"] == "/api/nowhere 处什么也没有"
        plain = await (await site.get("/api/nowhere")).json()
        assert (plain["title"], plain["detail"]) == ("Not Found", "there is nothing at /api/nowhere")

        run = {"nodes": [{"id": "n"}], "edges": []}
        refused = await (await site.post("/api/prompt", json=run, headers=chinese)).json()
        assert refused["detail"] == "这不是 PROMPT_REQUEST：$.nodes[0].fullType: 缺少此字段"
        drawn = {"name": "w", "nodes": [{"id": "n", "type": "no:Such", "position": {"x": 0, "y": 0}}], "edges": []}
        found = await (await site.post("/api/workflows/check", json=drawn, headers=chinese)).json()
        assert [problem["message"] for problem in found["problems"]] == ["没有节点类型 'no:Such'"]

        english, translated = [
            await (await site.get("/api/plugins", headers=headers)).json() for headers in ({}, chinese)
        ]
        assert [one["state"] for one in translated] == [one["state"] for one in english]
        studio = next(one for one in translated if one["name"] == "tavern-studio")
        assert "应答属于它自己的 HTTP 请求和套接字消息。" in [one["description"] for one in studio["permissions"]]
        listed = await (await site.get("/api/permissions", headers=chinese)).json()
        assert "运行工作流。" in [one["description"] for one in listed]

        page = {"Accept": "text/html", "Authorization": "", **chinese}
        answer = await site.get("/", headers=page)
        assert answer.status == 401
        assert '<html lang="zh">' in (text := await answer.text()) and "您已退出登录" in text
