"""pytest fixtures for the tests of plugins: a host, and what was called in it.

Write `pytest_plugins = ["tavern_host.testing"]` into the `conftest.py` at the top of the tests. Nothing of the host is
imported before a fixture is used. What the fixtures do is in docs/testing.md.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import pytest

from tavern_host.testing.recorder import CallRecorder

if TYPE_CHECKING:
    from tavern_host.host import Host
    from tavern_host.projects import Folders
    from tavern_host.testing.http import HttpClient

    asyncio_fixture: Callable[..., Any]

try:
    from pytest_asyncio import fixture as asyncio_fixture
except ImportError:
    asyncio_fixture = pytest.fixture  # `_asyncio_is_there` says what is needed

Placement = Literal["in-process", "loopback", "process"]
PLACEMENT = "TAVERN_PLACEMENT"

_MARKER = """\
tavern(plugins, trust, settings, placement, strict, serving, …): the host that the fixtures make: plugin folders \
(all trusted unless `trust` names some), settings by full key, and what installed plugins add (workflows by id)"""
_IN_PROCESS_ONLY = "in_process_only(reason): skip where plugins run in another placement, which this cannot work in"


class HostOptions(TypedDict, total=False):
    """What a test says of its host.

    `plugins` are plugin folders (relative ones to the test's file) or imported packages; `trust` names the plugins
    that need no grant, by default those of `plugins`; `settings` are values by full key. The rest is as for `Host`:
    with `serving`, plugins do what they do under `tavern serve` alone.
    Installed plugins add options that prepare the project (`testOptions` in their manifests).
    """

    plugins: Sequence[Path | str | ModuleType]
    trust: Iterable[str]
    settings: Mapping[str, Any]
    placement: Placement
    strict: bool
    serving: bool


class MakeHost(Protocol):
    """Makes a host that is not started yet: `async with make_host() as host`.

    All hosts of one test have the same project and the same operator, so that a restart can be tested.
    """

    def __call__(
        self,
        *,
        plugins: Sequence[Path | str | ModuleType] = ...,
        trust: Iterable[str] = ...,
        settings: Mapping[str, Any] = ...,
        placement: Placement = ...,
        strict: bool = ...,
        serving: bool = ...,
        **prepared: Any,
    ) -> Host:
        """Return a host as the test's marker says, but for what is given here; `prepared` are options that installed
        plugins add."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--placement`."""
    group = parser.getgroup("tavern", "tavern-host")
    group.addoption(
        "--placement",
        choices=("in-process", "loopback", "process"),
        help="Where the plugins of hosts run: loopback encodes and decodes everything that crosses their boundary.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, and the placement that was asked for."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _IN_PROCESS_ONLY)
    placement = config.getoption("--placement", default=None)
    if placement is not None:
        environment = pytest.MonkeyPatch()
        environment.setenv(PLACEMENT, placement)
        config.add_cleanup(environment.undo)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs plugins in the host's own process, where they are not."""
    for marker in item.iter_markers("in_process_only"):
        reason = marker.args[0] if marker.args else marker.kwargs.get("reason")
        if not isinstance(reason, str) or not reason:
            pytest.fail("in_process_only takes a reason: @pytest.mark.in_process_only('why')", pytrace=False)
        if os.environ.get(PLACEMENT, "in-process") != "in-process":
            pytest.skip(f"in-process only: {reason}")


# --- hosts ------------------------------------------------------------------------------------------------


@pytest.fixture
def tavern_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Return the operator's folders of this test, empty; commands that the test runs use them as well."""
    from tavern_host.projects import Folders

    for kind in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"TAVERN_{kind}_DIR", str(tmp_path / "operator" / kind.lower()))
    for variable in ("TAVERN_PROJECT", "TAVERN_SETTINGS"):
        monkeypatch.delenv(variable, raising=False)
    return Folders.of_user()


@pytest.fixture
def tavern_project(tmp_path: Path, tavern_folders: Folders) -> Path:
    """Return the folder of this test's project, made and empty, to write files into before a host is made."""
    from tavern_host.projects import make_project

    root = tmp_path / "project"
    make_project(root)
    return root


@pytest.fixture
def make_host(request: pytest.FixtureRequest, tavern_project: Path, tavern_folders: Folders) -> MakeHost:
    """Return a function that makes a host as the test's marker `tavern` says; see `MakeHost`."""
    marked = _marked(request.node)
    folder = request.node.path.parent
    recorder = request.getfixturevalue("call_recorder") if "call_recorder" in request.fixturenames else None

    def make(**overrides: Any) -> Host:
        from tavern_host.host import Host

        options: HostOptions = {**marked, **_checked(overrides, "make_host")}  # type: ignore[typeddict-item]
        plugins = _plugins(options, folder)
        for option, prepare in _added_options().items():
            if option in options:
                pkgutil.resolve_name(prepare)(tavern_project, options[option])  # type: ignore[literal-required]
        return Host(
            tavern_project,
            plugins=plugins,
            trust=_trusted(options, plugins),
            settings=options.get("settings"),
            strict=options.get("strict", False),
            serving=options.get("serving", False),
            placement=options.get("placement"),
            folders=tavern_folders,
            observer=recorder,
        )

    return make


@pytest.fixture
def _asyncio_is_there(request: pytest.FixtureRequest) -> None:
    if not request.config.pluginmanager.has_plugin("asyncio"):
        is_missing = asyncio_fixture is pytest.fixture
        hint = "pip install 'tavern-host[testing]'" if is_missing else "it is switched off here"
        pytest.fail(f"the fixture `host` needs pytest-asyncio ({hint})", pytrace=False)


@asyncio_fixture
async def host(_asyncio_is_there: None, request: pytest.FixtureRequest, make_host: MakeHost) -> AsyncIterator[Host]:
    """Give a started host as the test's marker `tavern` says; the test fails where a plugin of it is not in order."""
    options = _marked(request.node)
    async with make_host() as running:
        _must_be_started(running, _trusted(options, _plugins(options, request.node.path.parent)))
        yield running


@asyncio_fixture
async def http_client(host: Host) -> AsyncIterator[HttpClient]:
    """Give a client of the test's host, which is served on a socket of its own."""
    from tavern_host.testing.http import served

    async with served(host) as client:
        yield client


@pytest.fixture
def call_recorder() -> CallRecorder:
    """Return the recorder of all hook calls, service calls and events of this test's hosts."""
    return CallRecorder()


def _marked(item: pytest.Item) -> HostOptions:
    """Return the options that the markers set; for each keyword, those of the marker nearest to the test."""
    options: dict[str, Any] = {}
    for marker in item.iter_markers("tavern"):
        if marker.args:
            pytest.fail("the marker tavern takes keywords, such as plugins=[…], and nothing else", pytrace=False)
        options = {**_checked(marker.kwargs, "the marker tavern"), **options}
    return options  # type: ignore[return-value]  # just checked


_LISTS = frozenset({"plugins", "trust"})


def _checked(options: Mapping[str, Any], who: str) -> Mapping[str, Any]:
    known = HostOptions.__optional_keys__ | _added_options().keys()
    for name in options:
        if name not in known:
            from tavern_host.contracts.names import did_you_mean

            hint = did_you_mean(name, known) or f"; it takes {', '.join(sorted(known))}"
            pytest.fail(f"{who} takes no {name!r}{hint}", pytrace=False)
        if name in _LISTS and isinstance(options[name], str | Path):
            pytest.fail(f"{who}: {name} is a list, such as {name}=[{str(options[name])!r}]", pytrace=False)
    return options


@cache
def _added_options() -> dict[str, str]:
    """Return the options that installed plugins add, each with the `module:function` that prepares a project."""
    from tavern_host.plugins.discovery import discover

    installed = [record for record in discover()[0].values() if record.module is not None]
    manifests = [record.manifest for record in installed if record.manifest is not None]
    return {option: prepare for manifest in manifests for option, prepare in manifest.test_options.items()}


def _plugins(options: HostOptions, relative_to: Path) -> list[Path | ModuleType]:
    found: list[Path | ModuleType] = []
    for entry in options.get("plugins", ()):
        plugin = entry if isinstance(entry, ModuleType) else relative_to / entry
        if isinstance(plugin, Path) and not (plugin / "plugin.yaml").is_file():
            pytest.fail(f"{plugin} is no plugin: it has no plugin.yaml; give the folder that has it", pytrace=False)
        found.append(plugin)
    return found


def _trusted(options: HostOptions, plugins: Iterable[Path | ModuleType]) -> list[str]:
    trust = options.get("trust")
    return [_name(plugin) for plugin in plugins] if trust is None else list(trust)


def _name(plugin: Path | ModuleType) -> str:
    """Return a plugin's name, by its folder's where its manifest says none."""
    import yaml

    folder = Path(plugin.__file__ or "").parent if isinstance(plugin, ModuleType) else plugin
    try:
        return str(yaml.safe_load((folder / "plugin.yaml").read_text(encoding="utf-8"))["name"])
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):  # the host says what is wrong with it
        return folder.name


def _must_be_started(host: Host, names: Iterable[str]) -> None:
    """Fail where a plugin that the test counts on does not run; else every assertion would say something else."""
    known = {info.name: info for info in host.plugins()}
    for name in names:
        found = known.get(name) or known.get(name.replace("-", "_"))  # by its folder where its manifest is not read
        if found is None:
            pytest.fail(f"there is no plugin {name!r}, neither given nor installed", pytrace=False)
        if found.state.value != "started":
            problems = "".join(f"\n  {problem}" for problem in found.problems)
            pytest.fail(f"{name} is {found.state.value}:{problems}", pytrace=False)
