"""Admission: all that is wrong with what a plugin wants to register is told at once, and none of it is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from plugin_maker import host_with, make_plugin, messages_of, module_of, without_place, write

from tavern_host import PLUGINS, Host
from tavern_host.contracts.plugins import PluginState, Problem

HEAD = """\
from tavern_host import *
from tavern_host.contracts.ui import UiDeclaration
"""
SERVICES = "tavern_register_services"
OVERRIDES = "tavern_override_services"
ROUTES = "tavern_register_routes"
COMMANDS = "tavern_register_commands"
UI = "tavern_declare_ui"


Row = tuple[str, Callable[[Path], Path], list[str]]
"""What is wrong, how the plugin is written, and how each thing that is told begins."""


async def all_refused(tmp_path: Path, rows: Iterable[Row], *, whole: bool = False) -> None:
    """Fail with every plugin that is not refused as its row says, which may give the `whole` text."""
    with Failures() as failures:
        for number, (name, make, complaints) in enumerate(rows):
            with failures.row(name):
                folder = make(tmp_path / f"{number}")
                found = texts(await refused(folder, tmp_path / f"{number}"))
                assert len(found) == len(complaints), found
                assert found == complaints if whole else all(map(str.startswith, found, complaints)), found


async def refused(folder: Path, tmp_path: Path) -> list[Problem]:
    """Return why a plugin is not admitted; whatever it is, its place in the plugin's code is told."""
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin(folder.name).state is PluginState.FAILED
        assert host.plugin(folder.name).contributions == {}
        assert {p.state for p in host.plugins() if p.name != folder.name} == {PluginState.STARTED}
        problems = host.plugin(folder.name).problems
        assert all(p.file == str(folder / "__init__.py") and p.line for p in problems)
        return problems


def texts(problems: list[Problem]) -> list[str]:
    """Return what is told after the places."""
    return [without_place(problem) for problem in problems]


def declaring(tmp_path: Path, hook: str, *answers: str, code: str = "", **manifest: Any) -> Path:
    """Write a plugin whose declaration hook answers with a list of these expressions."""
    body = f"{HEAD}{code}\n@hookimpl\ndef {hook}(context):\n    return [{', '.join(answers)}]\n"
    hooked = [] if hook == OVERRIDES else [hook]
    return make_plugin(tmp_path, "acme", body, hooked=hooked, **manifest)


def declares(hook: str, answers: list[str], code: str = "async def answer(*given): ...\n") -> Callable[[Path], Path]:
    """Return what writes such a plugin into a folder."""
    return lambda folder: declaring(folder, hook, *answers, code=code)


# --- hooks -------------------------------------------------------------------------------------------


async def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
@hookimpl
def tavern_before_exec(request): pass

@hookimpl(specname="tavern_startup")
def begin(context, when): pass

@hookimpl
def tavern_shutdown(): pass

def not_a_hook(): pass

@hookimpl
def tavern_register_commands(): return "none"
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_startup", COMMANDS])
    found = await refused(folder, tmp_path)
    assert [str(problem).removeprefix(f"{folder}/") for problem in found] == [
        "__init__.py:4: there is no hook 'tavern_before_exec' (did you mean tavern_before_execute?)",
        "__init__.py:7: begin: the hook tavern_startup has no argument 'when' (it has context)",
        "__init__.py:10: tavern_shutdown: the hook tavern_shutdown is not declared "
        '(add "hook:server:host:shutdown" to permissions.hooks in plugin.yaml)',
        "__init__.py:15: tavern_register_commands returned str, expected a list of CommandInfo",
    ]


@pytest.mark.parametrize("options", ["wrapper=True", "hookwrapper=True"])
async def test_a_wrapper_is_refused(tmp_path: Path, options: str) -> None:
    code = f"import pluggy\n@pluggy.HookimplMarker('tavern')({options})\ndef tavern_startup():\n    yield\n"
    found = await refused(make_plugin(tmp_path, "acme", code, hooked=["tavern_startup"]), tmp_path)
    assert texts(found) == [
        "tavern_startup: hook wrappers are not supported "
        "(return a value from a plain hookimpl; filters get what the one before returned)"
    ]


async def test_an_override_hook_is_declared_by_the_service(tmp_path: Path) -> None:
    found = await refused(declaring(tmp_path, OVERRIDES), tmp_path)
    assert texts(found) == [
        "tavern_override_services: the hook tavern_override_services is not declared "
        "(name the service under permissions.services.override in plugin.yaml)"
    ]


async def test_a_hook_can_be_declared_by_its_field_of_the_manifest(tmp_path: Path) -> None:
    code = HEAD + "@hookimpl\ndef tavern_register_nodes(): return []\n"
    folder = make_plugin(tmp_path, "acme", code, nodes={"entry": "./nodes"})
    write(folder / "nodes.py", "")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").state is PluginState.STARTED


async def test_a_hook_may_be_implemented_twice_under_other_names(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
RAN = []

@hookimpl(specname="tavern_startup")
def first(): RAN.append("first")

@hookimpl(specname="tavern_startup")
def second(): RAN.append("second")
"""
    )
    async with host_with(tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=["tavern_startup"])):
        assert sorted(module_of().RAN) == ["first", "second"]


async def test_one_function_may_stand_for_two_hooks(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
RAN = []

@hookimpl
def tavern_startup(context): RAN.append(1)

tavern_shutdown = tavern_startup
"""
    )
    async with host_with(
        tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=["tavern_startup", "tavern_shutdown"])
    ):
        ran = module_of().RAN
        assert ran == [1]
    assert ran == [1, 1]


async def test_two_plugins_without_any_hook_are_admitted(tmp_path: Path) -> None:
    folders = [make_plugin(tmp_path, "one", ""), make_plugin(tmp_path, "two", "")]
    async with host_with(tmp_path / "p", *folders) as host:
        assert host.plugin("one").state is host.plugin("two").state is PluginState.STARTED


# --- what declaration hooks answer -------------------------------------------------------------------


ANSWERS = [
    (SERVICES, "5", "returned int, expected a list of ServiceInfo"),
    (SERVICES, "[5]", "returned a list with int, expected ServiceInfo"),
    (
        SERVICES,
        "[RouteInfo(method='GET', path='/api/x/acme/a', handler='a:b')]",
        "returned a list with RouteInfo, expected ServiceInfo",
    ),
    (ROUTES, "{}", "returned dict, expected a list of RouteInfo or MessageInfo"),
    (ROUTES, "[None]", "returned a list with NoneType, expected RouteInfo or MessageInfo"),
    (COMMANDS, "'ab'", "returned str, expected a list of CommandInfo"),
    (UI, "iter([])", "returned list_iterator, expected a list of UiDeclaration"),
    (ROUTES, "1 / 0", "failed: ZeroDivisionError: division by zero"),
    (ROUTES, "RouteInfo(method='FETCH', path='/', handler='')", "failed: ValidationError: "),
    (ROUTES, "exit(2)", "failed: tavern_register_routes of acme tried to end the program (SystemExit: 2)"),
]


async def test_an_answer_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    def answering(folder: Path, hook: str, answer: str) -> Path:
        return make_plugin(folder, "acme", f"{HEAD}@hookimpl\ndef {hook}():\n    return {answer}\n", hooked=[hook])

    rows = [(a, partial(answering, hook=h, answer=a), [f"{h} {complaint}"]) for h, a, complaint in ANSWERS]
    await all_refused(tmp_path, rows)


async def test_a_declaration_that_fails_is_told_at_the_line_that_failed(tmp_path: Path) -> None:
    code = f"{HEAD}@hookimpl\ndef {ROUTES}():\n    return 1 / 0\n"
    (found,) = await refused(make_plugin(tmp_path, "acme", code, hooked=[ROUTES]), tmp_path)
    assert found.line == 5
    assert found.hint == "mend it there, or keep it out with `tavern plugins disable acme`"


async def test_what_is_declared_is_told_at_the_hook_that_declared_it(tmp_path: Path) -> None:
    code = f"""{HEAD}
@hookimpl
def {ROUTES}(context):
    return [{route("/api/other")}]

@hookimpl
def {COMMANDS}(context):
    return [{command("serve")}]
"""
    found = await refused(make_plugin(tmp_path, "acme", code, hooked=[ROUTES, COMMANDS]), tmp_path)
    assert [(problem.line, problem.message) for problem in found] == [
        (4, "the route GET /api/other must begin with /api/x/acme/"),
        (8, "the command 'serve' belongs to the host"),
    ]


@pytest.mark.parametrize("answer", ["None", "[]", "()"])
async def test_nothing_is_an_answer_too(tmp_path: Path, answer: str) -> None:
    code = f"{HEAD}@hookimpl\nasync def tavern_register_routes():\n    return {answer}\n"
    async with host_with(tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=[ROUTES])) as host:
        assert host.plugin("acme").state is PluginState.STARTED


# --- services ----------------------------------------------------------------------------------------


REFUSED_SERVICES = [
    ("ServiceInfo(service='llmm', handler=f'{__name__}:C')", "there is no service 'llmm' (did you mean llm?)"),
    ("ServiceInfo(service='llm', handler=f'{__name__}:C')", "llm is provided by tavern-llm already (override it"),
    ("ServiceInfo(service='plugins', handler=f'{__name__}:C')", "plugins is provided by tavern-host already"),
]


async def test_a_service_that_cannot_be_registered_is_refused(tmp_path: Path) -> None:
    with Failures() as failures:
        for number, (answer, complaint) in enumerate(REFUSED_SERVICES):
            with failures.row(answer):
                folder = declares(SERVICES, [answer], "class C: pass\n")(tmp_path / f"{number}")
                assert texts(await refused(folder, tmp_path / f"{number}"))[0].startswith(complaint)


REFUSED_PROVIDERS = [
    ("'nonsense'", "acme: the handler 'nonsense' must be 'module:name' inside 'tavern_plugins.acme'"),
    ("'os:system'", "acme: the handler 'os:system' must be 'module:name' inside 'tavern_plugins.acme'"),
    ("'tavern_plugins.acme2:C'", "acme: the handler 'tavern_plugins.acme2:C' must be 'module:name' inside"),
    ("f'{__name__}:Nope'", "acme: there is no handler 'tavern_plugins.acme:Nope' (module"),
    ("f'{__name__}.nope:C'", "acme: there is no handler 'tavern_plugins.acme.nope:C' (No module named"),
    ("f'{__name__}:value'", "acme: the handler 'tavern_plugins.acme:value' is not callable"),
    ("f'{__name__}:function'", "tavern_plugins.acme:function must be a class"),
    ("f'{__name__}:C'", "C lacks the method models of llm"),
    ("f'{__name__}:C.__class__'", "type lacks the method"),
]


async def test_a_provider_that_is_none_is_refused(tmp_path: Path) -> None:
    code, permissions = "value = 5\ndef function(): pass\nclass C: pass\n", {"services": {"override": ["llm"]}}
    with Failures() as failures:
        for number, (handler, complaint) in enumerate(REFUSED_PROVIDERS):
            with failures.row(handler):
                answer = f"ServiceInfo(service='llm', handler={handler})"
                folder = declaring(tmp_path / f"{number}", OVERRIDES, answer, code=code, permissions=permissions)
                assert (await refused(folder, tmp_path / f"{number}"))[0].message.startswith(complaint)


@pytest.mark.parametrize("version", [0, 1, 99])
async def test_what_provides_a_service_alone_must_provide_all_of_it(
    tmp_path: Path, operator_folders: Path, version: int
) -> None:
    write(operator_folders / "config" / "host.yaml", "disabled: [tavern-llm]\n")
    answer = f"ServiceInfo(service='llm', handler=f'{{__name__}}:C', version={version})"
    folder = declaring(tmp_path, SERVICES, answer, code="class C: pass\n")
    async with host_with(tmp_path / "p", folder) as host:
        assert messages_of(host) == [
            "C lacks the method models of llm",
            "C lacks the method complete of llm",
            "C lacks the method stream of llm",
        ]


async def test_the_same_override_twice_is_refused(tmp_path: Path) -> None:
    answer = "ServiceInfo(service='plugins', handler=f'{__name__}:C')"
    code = """
from tavern_host.contracts.plugins import Plugins
class C(Plugins):
    async def list_plugins(self): return []
    async def get(self, name): ...
    async def assets(self, kind): return []
    async def service_stack(self, service): return []
    async def grant(self, name, *, call=None): ...
    async def revoke(self, name, *, call=None): ...
    async def why(self, subject): ...
    async def enable(self, name, *, call=None): ...
    async def disable(self, name, *, call=None): ...
    async def reload(self, name=None, *, call=None): return []
"""
    folder = declaring(
        tmp_path, OVERRIDES, answer, answer, code=code, permissions={"services": {"override": ["plugins"]}}
    )
    assert texts(await refused(folder, tmp_path)) == ["acme registers plugins 2 times"]


# --- routes, messages and commands -------------------------------------------------------------------


def route(path: str, method: str = "GET", handler: str = "f'{__name__}:answer'") -> str:
    return f"RouteInfo(method={method!r}, path={path!r}, handler={handler})"


def command(name: str, handler: str = "f'{__name__}:answer'", parameters: str = "[]") -> str:
    return f"CommandInfo(name={name!r}, help='', handler={handler}, parameters={parameters})"


REFUSED_ROUTES = [
    ([route("/api/acme")], ["the route GET /api/acme must begin with /api/x/acme/"]),
    ([route("/mine")], ["the route GET /mine must begin with /api/x/acme/"]),
    ([route("/api/x/acme/{a-b}")], ["the route GET /api/x/acme/{a-b}: braces stand around a name, such as {id}"]),
    ([route("/api/x/acme")], ["the route GET /api/x/acme must begin with /api/x/acme/"]),
    ([route("/api/x/acme2/a")], ["the route GET /api/x/acme2/a must begin with /api/x/acme/"]),
    ([route("/api/x/{name}/a")], ["the route GET /api/x/{name}/a must begin with /api/x/acme/"]),
    (
        [route("/api/x/acme/a"), route("/api/x/acme/a")],
        ["GET /api/x/acme/a is registered by acme already"],
    ),
    ([route("/api/x/acme/{1a}")], ["the route GET /api/x/acme/{1a}: '1a' cannot be the name of a part"]),
    ([route("/api/x/acme/{a}/{a}")], ["the route GET /api/x/acme/{a}/{a}: 'a' names two parts"]),
    (
        [route("/api/x/acme/a", handler="'os:getcwd'")],
        ["the handler 'os:getcwd' must be 'module:name' inside 'tavern_plugins.acme'"],
    ),
    (
        [route("/api/x/acme/a", handler="f'{__name__}.nope:f'")],
        ["the handler 'tavern_plugins.acme.nope:f' names a module that does not exist"],
    ),
    (
        [route("/api/x/acme/a", handler="f'{__name__}.no.pe:f'")],
        ["the handler 'tavern_plugins.acme.no.pe:f' names a module that does not exist"],
    ),
    (
        ["MessageInfo(type='PROMPT_REQUEST', handler=f'{__name__}:answer')"],
        ["the message type PROMPT_REQUEST is registered by tavern-engine already"],
    ),
]


async def test_a_route_that_cannot_be_registered_is_refused(tmp_path: Path) -> None:
    await all_refused(tmp_path, [(str(a), declares(ROUTES, a), c) for a, c in REFUSED_ROUTES], whole=True)


REFUSED_COMMANDS = [
    ([command("plugins explode")], ["the command 'plugins explode' belongs to the host"]),
    ([command("serve")], ["the command 'serve' belongs to the host"]),
    ([command("workflow run")], ["the command 'workflow run' belongs to "]),
    ([command("Acme")], ["the command name 'Acme' must be one or two lower-case words"]),
    ([command("")], ["the command name '' must be one or two lower-case words"]),
    ([command(" ")], ["the command name ' ' must be one or two lower-case words"]),
    ([command("a b c")], ["the command name 'a b c' must be one or two lower-case words"]),
    ([command("--help")], ["the command name '--help' must be one or two lower-case words"]),
    ([command("acme go"), command("acme go")], ["the command 'acme go' belongs to acme"]),
    ([command("workflow")], ["the command 'workflow' stands beside 'workflow "]),
    ([command("demo now")], ["the command 'demo now' stands beside 'demo'"]),
    (
        [command("acme", parameters="[CommandParameter(name='')]")],
        ["the command 'acme': the parameter name '' must be a lower-case word, with -- before it for an option"],
    ),
    (
        [command("acme", parameters="[CommandParameter(name='--json')]")],
        ["the command 'acme': the parameter --json belongs to the host"],
    ),
    (
        [command("acme", parameters="[CommandParameter(name='--a-b'), CommandParameter(name='a_b')]")],
        ["the command 'acme': two parameters are called a_b"],
    ),
]


async def test_a_command_that_cannot_be_registered_is_refused(tmp_path: Path) -> None:
    await all_refused(tmp_path, [(str(a), declares(COMMANDS, a), c) for a, c in REFUSED_COMMANDS])


async def test_what_is_right_is_registered_under_the_plugins_name(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
@hookimpl
def tavern_register_routes():
    return [
        RouteInfo(method="GET", path="/api/x/acme/{thing}", handler=f"{__name__}.web:answer"),
        MessageInfo(type="ACME_PING", handler=f"{__name__}.web:answer"),
    ]

@hookimpl
async def tavern_register_commands():
    return (CommandInfo(name="acme go", help="", handler=f"{__name__}.web:answer"),)
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=[ROUTES, COMMANDS])
    write(folder / "web.py", "raise RuntimeError('nobody asked yet')\n")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").contributions == {
            "route": ["GET /api/x/acme/{thing}"],
            "message": ["ACME_PING"],
            "command": ["acme go"],
            "hook": [ROUTES, COMMANDS],
        }
        found, parameters, _ = host.registrations.find("GET", "/api/x/acme/abc")
        assert found is not None
        assert (found.plugin, parameters) == ("acme", {"thing": "abc"})
    assert host.registrations.find("GET", "/api/x/acme/abc") == (None, {}, [])
    assert "acme go" not in host.registrations.commands
    assert "ACME_PING" not in host.registrations.messages


async def test_a_refused_plugin_registers_nothing_of_what_was_right(tmp_path: Path) -> None:
    folder = declaring(tmp_path, ROUTES, route("/api/x/acme/a"), route("/api/other"), code="async def answer(): ...\n")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.registrations.find("GET", "/api/x/acme/a")[0] is None


# --- the user interface ------------------------------------------------------------------------------


REFUSED_UI = [
    (
        "kind='outlet', target='node:heder:right'",
        "there is no outlet 'node:heder:right' (did you mean node:header:right",
    ),
    (
        "kind='outlet', target='node:header:right'",
        "outlet on 'node:header:right' is not declared (add it to permissions.ui.inject in plugin.yaml)",
    ),
    ("kind='wrap', target='ui:BaseNode'", "wrap on 'ui:BaseNode' is not declared (add it to permissions.ui.wrap"),
    ("kind='override', target='ui:BaseNode'", "override on 'ui:BaseNode' is not declared"),
    ("kind='wrap', target='node:header:right'", "there is no component 'node:header:right'"),
    ("kind='outlet', target='node:footer[x]'", "there is no outlet 'node:footer[x]'"),
]


async def test_an_unknown_or_undeclared_target_is_refused(tmp_path: Path) -> None:
    await all_refused(tmp_path, [(d, declares(UI, [f"UiDeclaration({d})"]), [c]) for d, c in REFUSED_UI])


async def test_a_declared_outlet_or_wrap_is_the_plugins(tmp_path: Path) -> None:
    folder = declaring(
        tmp_path,
        UI,
        "UiDeclaration(kind='outlet', target='sidebar:panel:header[nodes]')",
        "UiDeclaration(kind='wrap', target='ui:BaseNode')",
        "UiDeclaration(kind='menuItem', target='anything')",
        permissions={"ui": {"inject": ["sidebar:panel:header[nodes]"], "wrap": ["ui:BaseNode"]}},
    )
    async with host_with(tmp_path / "p", folder) as host:
        contributions = host.plugin("acme").contributions
        assert contributions["ui outlet"] == ["sidebar:panel:header[nodes]"]
        assert contributions["ui wrap"] == ["ui:BaseNode"]
        assert contributions["ui menuItem"] == ["anything"]


# --- handlers ----------------------------------------------------------------------------------------


WHO = """
from tavern_host import HttpResponse

def who(request, context):
    return HttpResponse(data=["{}", context.project.name])
"""


async def test_the_handlers_of_two_hosts_do_not_mix(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/who", handler=f"{__name__}.web:who")]
"""
    )
    hosts = []
    for number in ("one", "two"):
        folder = make_plugin(tmp_path / number, "acme", code, hooked=[ROUTES])
        write(folder / "web.py", WHO.format(number))
        hosts.append(host_with(tmp_path / f"project-{number}", folder))

    async def who(host: Host) -> Any:
        found = host.registrations.find("GET", "/api/x/acme/who")[0]
        assert found is not None
        response = await found.call(None)
        return response.data

    async with hosts[0]:
        async with hosts[1]:
            assert await who(hosts[0]) == ["one", "project-one"]
            assert await who(hosts[1]) == ["two", "project-two"]
        assert await who(hosts[0]) == ["one", "project-one"]


async def test_a_service_stack_names_the_host_as_provider_of_plugins(tmp_path: Path) -> None:
    async with Host(tmp_path / "p") as host:
        (layer,) = await host.services.get(PLUGINS).service_stack("plugins")
        assert (layer.plugin, layer.handler, layer.override) == (
            "tavern-host",
            "tavern_host.plugins.service:HostPlugins",
            False,
        )
