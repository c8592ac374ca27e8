"""Admission: all that is wrong with what a plugin wants to register is told at once, and none of it is registered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from helpers.repetition import Failures
from plugin_maker import host_with, make_plugin, module_of, problems_of, without_place, write

from tavern_host import Host, NodeDefinition
from tavern_host.contracts.contributions import handler_of
from tavern_host.contracts.plugins import PluginState, Problem
from tavern_host.contracts.wire import Model

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
"""What is wrong, how the plugin is written into a folder, and how each thing that is told begins."""


async def all_refused(tmp_path: Path, rows: Iterable[Row]) -> None:
    """Fail with every plugin that is not refused as its row says; each has a number after its name in one host."""
    folders, told = [], []
    for number, (name, make, complaints) in enumerate(rows):
        folder = make(tmp_path / f"{number}")
        for file in folder.iterdir():
            file.write_text(file.read_text().replace("acme", f"acme{number}"))
        folders.append(folder.rename(tmp_path / f"acme{number}"))
        told.append((name, [complaint.replace("acme", f"acme{number}") for complaint in complaints]))
    async with host_with(tmp_path / "p", *folders) as host:
        with Failures() as failures:
            for folder, (name, complaints) in zip(folders, told, strict=True):
                with failures.row(name):
                    found = texts(problems_of_refused(host, folder))
                    assert len(found) >= len(complaints), found
                    assert all(map(str.startswith, found, complaints)), found
        assert {p.state for p in host.plugins() if p.first_party} == {PluginState.STARTED}


def problems_of_refused(host: Host, folder: Path) -> list[Problem]:
    """Return why a plugin is not admitted; whatever it is, its place in the plugin's code is told."""
    info = host.plugin(folder.name)
    assert (info.state, info.contributions) == (PluginState.FAILED, {})
    assert all(p.file == str(folder / "__init__.py") and p.line for p in info.problems)
    return info.problems


async def refused(folder: Path, tmp_path: Path) -> list[Problem]:
    """Return why a plugin is not admitted."""
    async with host_with(tmp_path / "p", folder) as host:
        return problems_of_refused(host, folder)


def texts(problems: list[Problem]) -> list[str]:
    """Return the texts of problems without their places."""
    return [without_place(problem) for problem in problems]


def declaring(tmp_path: Path, hook: str, *answers: str, code: str = "", **manifest: Any) -> Path:
    """Write a plugin whose declaration hook answers with a list of these expressions."""
    body = f"{HEAD}{code}\n@hookimpl\ndef {hook}(context):\n    return [{', '.join(answers)}]\n"
    hooked = [] if hook == OVERRIDES else [hook]
    return make_plugin(tmp_path, "acme", body, hooked=hooked, **manifest)


def declares(hook: str, answers: list[str], code: str = "async def answer(*given): ...\n") -> Callable[[Path], Path]:
    """Return the function that writes such a plugin into a folder."""
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

@hookimpl
def tavern_register_routes(context):
    return [RouteInfo(method="GET", path="/api/other", handler=f"{__name__}:not_a_hook")]
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_startup", COMMANDS, ROUTES])
    found = await refused(folder, tmp_path)
    assert [str(problem).removeprefix(f"{folder}/") for problem in found] == [
        "__init__.py:4: there is no hook 'tavern_before_exec' (did you mean tavern_before_execute?)",
        "__init__.py:7: begin: the hook tavern_startup has no argument 'when' (it has context)",
        "__init__.py:10: tavern_shutdown: the hook tavern_shutdown is not declared "
        '(add "hook:server:host:shutdown" to permissions.hooks in plugin.yaml)',
        "__init__.py:15: tavern_register_commands returned str, expected a list of CommandInfo",
        "__init__.py:18: the route GET /api/other must begin with /api/x/acme/",
    ]


EMPTY = f"{HEAD}@hookimpl\nasync def {ROUTES}():\n    return "
TWICE = f"{HEAD}RAN = []\n@hookimpl\ndef tavern_startup(context): RAN.append(1)\ntavern_shutdown = tavern_startup\n"


async def test_what_may_be_declared_is_admitted(tmp_path: Path) -> None:
    code = f"{HEAD}@hookimpl\ndef tavern_register_nodes(): return []\n"
    by_field = make_plugin(tmp_path, "by-field", code, nodes={"entry": "./nodes"})
    write(by_field / "nodes.py", "")
    twice = make_plugin(tmp_path, "acme", TWICE, hooked=["tavern_startup", "tavern_shutdown"])
    empty = [make_plugin(tmp_path, f"e{n}", EMPTY + a, hooked=[ROUTES]) for n, a in enumerate(("None", "[]", "()"))]
    async with host_with(tmp_path / "p", by_field, twice, *empty) as host:
        assert {p.state for p in host.plugins()} == {PluginState.STARTED}
        ran = module_of().RAN
        assert ran == [1], "one function stands for two hooks"
    assert ran == [1, 1]


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


def answering(hook: str, answer: str) -> Callable[[Path], Path]:
    code = f"{HEAD}@hookimpl\ndef {hook}():\n    return {answer}\n"
    return lambda folder: make_plugin(folder, "acme", code, hooked=[hook])


async def test_answers_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    rows = [(answer, answering(hook, answer), [f"{hook} {complaint}"]) for hook, answer, complaint in ANSWERS]
    await all_refused(tmp_path, rows)


# --- services ----------------------------------------------------------------------------------------


REFUSED_SERVICES = [
    ("ServiceInfo(service='llmm', handler=f'{__name__}:C')", "there is no service 'llmm' (did you mean llm?)"),
    ("ServiceInfo(service='llm', handler=f'{__name__}:C')", "llm is provided by tavern-llm already (override it"),
    ("ServiceInfo(service='plugins', handler=f'{__name__}:C')", "plugins is provided by tavern-host already"),
]


REFUSED_PROVIDERS = [
    ("'nonsense'", "the handler 'nonsense' must be 'module:name' inside 'tavern_plugins.acme'"),
    ("'os:system'", "the handler 'os:system' must be 'module:name' inside 'tavern_plugins.acme'"),
    ("'tavern_plugins.acme2:C'", "the handler 'tavern_plugins.acme2:C' must be 'module:name' inside"),
    ("f'{__name__}:Nope'", "there is no handler 'tavern_plugins.acme:Nope'"),
    ("f'{__name__}:C.nope'", "acme: there is no handler 'tavern_plugins.acme:C.nope' (type object"),
    ("f'{__name__}:value'", "acme: the handler 'tavern_plugins.acme:value' is not callable"),
    ("f'{__name__}:function'", "tavern_plugins.acme:function must be a class"),
    ("f'{__name__}:C'", "C lacks the method models of llm"),
    ("f'{__name__}:C.__class__'", "type lacks the method"),
    ("f'{__name__}:C', version=4", "tavern_plugins.acme:C is for version 4 of llm; this is 3"),
]


async def test_services_that_cannot_be_registered_are_refused(tmp_path: Path) -> None:
    code = """value = 5
def function(): pass
class C: pass
class Whole:
    async def models(self): return []
    async def complete(self, request, *, call=None): ...
    def stream(self, request, *, call=None): ...
"""

    def providing(*handlers: str, service: str = "llm") -> Callable[[Path], Path]:
        answers = [f"ServiceInfo(service={service!r}, handler={handler})" for handler in handlers]
        permissions = {"services": {"override": ["llm"]}}
        return lambda folder: declaring(folder, OVERRIDES, *answers, code=code, permissions=permissions)

    whole, undeclared = "f'{__name__}:Whole'", "the override of toolManager is not declared (add it to permissions."
    rows: list[Row] = [(a, declares(SERVICES, [a], "class C: pass\n"), [c]) for a, c in REFUSED_SERVICES]
    rows += [(handler, providing(handler), [told]) for handler, told in REFUSED_PROVIDERS]
    rows.append(("another service", providing(whole, service="toolManager"), [undeclared]))
    rows.append(("the same twice", providing(whole, whole), ["acme registers llm 2 times"]))
    await all_refused(tmp_path, rows)


# --- routes, messages and commands -------------------------------------------------------------------


def route(path: str, method: str = "GET", handler: str = "f'{__name__}:answer'") -> str:
    return f"RouteInfo(method={method!r}, path={path!r}, handler={handler})"


def command(name: str, handler: str = "f'{__name__}:answer'", parameters: str = "[]") -> str:
    return f"CommandInfo(name={name!r}, help='', handler={handler}, parameters={parameters})"


BEGINS, OWN = "must begin with /api/x/acme/", "/api/x/acme/a"
INSIDE, NOWHERE = "must be 'module:name' inside 'tavern_plugins.acme'", "names a module that does not exist"
REFUSED_ROUTES = [
    ([route("/mine")], f"the route GET /mine {BEGINS}"),
    ([route("/api/acme")], f"the route GET /api/acme {BEGINS}"),
    ([route("/api/x/acme")], f"the route GET /api/x/acme {BEGINS}"),
    ([route("/api/x/acme2/a")], f"the route GET /api/x/acme2/a {BEGINS}"),
    ([route("/api/x/{name}/a")], f"the route GET /api/x/{{name}}/a {BEGINS}"),
    ([route("/api/x/acme/{a-b}")], "the route GET /api/x/acme/{a-b}: braces stand around a name, such as {id}"),
    ([route("/api/x/acme/{1a}")], "the route GET /api/x/acme/{1a}: '1a' cannot be the name of a part"),
    ([route("/api/x/acme/{a}/{a}")], "the route GET /api/x/acme/{a}/{a}: 'a' names two parts"),
    ([route(OWN), route(OWN)], "GET /api/x/acme/a is registered by acme already"),
    ([route(OWN, handler="'os:getcwd'")], f"the handler 'os:getcwd' {INSIDE}"),
    ([route(OWN, handler="f'{__name__}.nope:f'")], f"the handler 'tavern_plugins.acme.nope:f' {NOWHERE}"),
    ([route(OWN, handler="f'{__name__}.no.pe:f'")], f"the handler 'tavern_plugins.acme.no.pe:f' {NOWHERE}"),
    (
        ["MessageInfo(type='PROMPT_REQUEST', handler=f'{__name__}:answer')"],
        "the message type PROMPT_REQUEST is registered by tavern-engine already",
    ),
]
WORDS, PARAMETER = "must be one or two lower-case words", "[CommandParameter(name={!r})]"
REFUSED_COMMANDS = [
    ([command("plugins explode")], "the command 'plugins explode' belongs to the host"),
    ([command("serve")], "the command 'serve' belongs to the host"),
    ([command("workflow run")], "the command 'workflow run' belongs to "),
    *(([command(name)], f"the command name {name!r} {WORDS}") for name in ("Acme", "", " ", "a b c", "--help")),
    ([command("acme go"), command("acme go")], "the command 'acme go' belongs to acme"),
    ([command("workflow")], "the command 'workflow' stands beside 'workflow "),
    ([command("demo now")], "the command 'demo now' stands beside 'demo'"),
    (
        [command("acme", parameters=PARAMETER.format(""))],
        "the command 'acme': the parameter name '' must be a lower-case word, with -- before it for an option",
    ),
    (
        [command("acme", parameters=PARAMETER.format("--json"))],
        "the command 'acme': the parameter --json belongs to the host",
    ),
    (
        [command("acme", parameters=f"{PARAMETER.format('--a-b')} + {PARAMETER.format('a_b')}")],
        "the command 'acme': two parameters are called a_b",
    ),
]
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
    (
        "kind='outlet', target='sidebar:panel:header[worklows]'",
        "there is no panel 'worklows' (did you mean workflows",
    ),
    (
        "kind='outlet', target='sidebar:panel:headr[nodes]'",
        "there is no outlet 'sidebar:panel:headr[nodes]' (did you mean sidebar:panel:header[nodes]",
    ),
]


async def test_routes_commands_and_targets_are_refused(tmp_path: Path) -> None:
    rows: list[Row] = [(str(a), declares(ROUTES, a), [c]) for a, c in REFUSED_ROUTES]
    rows += [(str(a), declares(COMMANDS, a), [c]) for a, c in REFUSED_COMMANDS]
    rows += [(d, declares(UI, [f"UiDeclaration({d})"]), [c]) for d, c in REFUSED_UI]
    await all_refused(tmp_path, rows)


async def test_registrations_are_the_plugins_own(tmp_path: Path) -> None:
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
    write(folder / "web.py", "def answer(): ...\nraise RuntimeError('nobody asked yet')\n")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").contributions == {
            "route": ["GET /api/x/acme/{thing}"],
            "message": ["ACME_PING"],
            "command": ["acme go"],
            "hook": [ROUTES, COMMANDS],
        }
        found, parameters, _ = host.registrations.find("GET", "/api/x/acme/abc")
        assert (found.plugin, parameters) == ("acme", {"thing": "abc"})
    assert host.registrations.find("GET", "/api/x/acme/abc") == (None, {}, [])
    assert "acme go" not in host.registrations.commands
    assert "ACME_PING" not in host.registrations.messages


# --- handlers ----------------------------------------------------------------------------------------


UNSEEN = {
    "another spelling of a star": "from .parts import  *\n",
    "a global statement": "def make():\n    global answer\n    answer = len\nmake()\n",
    "globals in a function": "def make():\n    globals()['answer'] = len\nmake()\n",
    "setattr": "import sys\nsetattr(sys.modules[__name__], 'answer', len)\n",
    "the module's dict": "from . import __name__ as me\nimport sys\nsys.modules[me + '.web4'].answer = len\n",
    "exec": "exec('answer = len')\n",
    "too deep to be compiled": f"answer = {'-' * 100_000}1\n",
}
"""Modules that have a handler, or fail, in a way that their code does not show."""


async def test_a_handler_that_code_does_not_show_is_no_fault(tmp_path: Path) -> None:
    named = [f"web{number}" for number in range(len(UNSEEN))] + ["shut.web", "odd"]
    routes = [route(f"{OWN}/{one}", handler=f"f'{{__name__}}.{one}:answer'") for one in named]
    folder = declaring(tmp_path, ROUTES, *routes, code="from . import odd\n")
    write(folder / "parts.py", "def answer(): ...\n")
    for number, code in enumerate(UNSEEN.values()):
        write(folder / f"web{number}.py", code)
    write(folder / "odd.py", "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(answer=len)\n")
    write(folder / "shut" / "__init__.py", "raise RuntimeError('nobody asked yet')\n")
    write(folder / "shut" / "web.py", "def answer(): ...\n")
    async with host_with(tmp_path / "p", folder) as host:
        assert problems_of(host) == []
        assert "tavern_plugins.acme.shut" not in sys.modules


async def test_every_handler_that_a_first_party_plugin_names_is_there(tmp_path: Path) -> None:
    async with Host(tmp_path / "p", third_party=False) as host:
        hooks, catalogue = host._manager.dispatcher, host._manager.dispatcher.catalogue
        named = [h for h in catalogue.hooks if any("handler" in t.__annotations__ for t in catalogue.item_types(h)[0])]
        found = [(one, item.handler) for h in named for one in await hooks.collect(h, {}) for item in one.value]
        assert len(found) > 250
        assert all(callable(answer._runtime.function(handler)) for answer, handler in found)


class Phone(Model):
    handler: str = "5"


def test_a_field_of_another_meaning_names_no_handler() -> None:
    node = NodeDefinition(type="A", namespace="a", handler=texts)
    assert (handler_of(Phone()), handler_of(node)) == ("", f"{__name__}:texts")


WHO = """
from tavern_host import HttpResponse

def who(request, context):
    return HttpResponse(data=["{}", context.project.name])
"""


async def test_the_handlers_of_two_hosts_do_not_mix(tmp_path: Path) -> None:
    code = f"""{HEAD}
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/who", handler=f"{{__name__}}.web:who")]
"""
    hosts = []
    for number in ("one", "two"):
        folder = make_plugin(tmp_path / number, "acme", code, hooked=[ROUTES])
        write(folder / "web.py", WHO.format(number))
        hosts.append(host_with(tmp_path / f"project-{number}", folder))

    async def who(host: Host) -> Any:
        found = host.registrations.find("GET", "/api/x/acme/who")[0]
        response = await found.call(None)
        return response.data

    async with hosts[0]:
        async with hosts[1]:
            assert await who(hosts[0]) == ["one", "project-one"]
            assert await who(hosts[1]) == ["two", "project-two"]
        assert await who(hosts[0]) == ["one", "project-one"]


def with_modules(tmp_path: Path, code: str, **modules: str) -> Path:
    """Write a plugin of which other modules are imported."""
    folder = make_plugin(tmp_path, "acme", f"{HEAD}{code}", permissions={"hooks": [GUARD]})
    for name, text in modules.items():
        write(folder / f"{name}.py", f"{HEAD}{text}")
    return folder


GUARD = "hook:server:workflow:before-execute"
BELOW = "tavern_before_execute(A)"
BEFORE = "def tavern_before_execute(request):\n    return Veto(reason='no')\n"
METHOD = f"@hookimpl\n{BEFORE}".replace("\n", "\n    ")


async def test_a_value_that_says_of_itself_what_it_is_is_not_asked(tmp_path: Path) -> None:
    """Such as the proxies of web frameworks, which raise outside of a request, and mocks."""
    code = """
class Proxy:
    def __init__(self, answer): self.__dict__["answer"] = answer
    @property
    def __class__(self): return self.answer()
    def __getattr__(self, name): raise RuntimeError("outside of a request")

def fails(): raise RuntimeError("outside of a request")

request, kind = Proxy(fails), Proxy(lambda: type)
"""
    folder = with_modules(tmp_path, f"@hookimpl\n{BEFORE}{code}")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").state is PluginState.STARTED, problems_of(host)


async def test_what_looks_like_a_hookimpl_and_is_never_called_is_refused(tmp_path: Path) -> None:
    """Each is a guard that its author believes in, and that would let everything pass."""
    rows = [
        ("unmarked", BEFORE, {}, "tavern_before_execute: it has the name of a hook"),
        ("unmarked, misspelt", BEFORE.replace("execute", "excute"), {}, "tavern_before_excute: it has the name"),
        ("unmarked, async", f"async {BEFORE}", {}, "tavern_before_execute: it has the name of a hook"),
        ("imported unmarked", "from .guard import *", {"guard": BEFORE}, "tavern_before_execute: it has the name"),
        ("of a class", f"class Guard:\n    {METHOD}", {}, "Guard.tavern_before_execute: it is marked"),
        ("in a module", "from . import guard", {"guard": f"@hookimpl\n{BEFORE}"}, "tavern_before_execute: it is"),
        ("of a class in a module", "from . import guard", {"guard": f"class G:\n    {METHOD}"}, "G.tavern_before_ex"),
        ("no function", "@hookimpl\nclass tavern_before_execute: pass", {}, "tavern_before_execute: a hookimpl is"),
        (
            "of a class below",
            f"@hookimpl\nclass A: pass\nclass {BELOW}: pass\ndel A",
            {},
            "tavern_before_execute: a hookimpl is",
        ),
    ]
    with Failures() as failures:
        for number, (name, code, modules, complaint) in enumerate(rows):
            folder = with_modules(tmp_path / str(number), code, **modules)
            async with host_with(tmp_path / f"p{number}", folder) as host:
                with failures.row(name):
                    told = [(without_place(p), p.file is not None) for p in host.plugin("acme").problems]
                    assert [place for _, place in told] == [True]
                    assert told[0][0].startswith(complaint), told


async def test_a_helper_and_an_imported_hookimpl_are_no_mistake(tmp_path: Path) -> None:
    code = "from .guard import tavern_before_execute\ndef before_execute(): pass\nclass Other: pass"
    folder = with_modules(tmp_path, code, guard=f"@hookimpl\n{BEFORE}")
    async with host_with(tmp_path / "p", folder) as host:
        assert host.plugin("acme").problems == []


LATE = """
from tavern_host.contracts.wire import Model

class Guest(Model):
    name: str

class Lazy:
    def __getattr__(self, name):
        Guests.asked = True
        raise AttributeError(name)

class Guests:
    first = Lazy()
"""


async def test_looking_for_hookimpls_runs_no_code_of_what_it_looks_at(tmp_path: Path) -> None:
    """A model that is built when it is first used would change while it is looked at."""
    async with host_with(tmp_path / "p", with_modules(tmp_path, LATE)) as host:
        assert problems_of(host) == []
        assert not hasattr(module_of().Guests, "asked")
