"""Plugins that publish services and hooks of their own under their name, and others that build on them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from plugin_maker import context_of, contextual, host_with, make_plugin, messages_of, problems_of, said_of, write

from tavern_host import Host, ServiceKey
from tavern_host.contracts.errors import Forbidden, PermissionDenied, ServiceUnavailable
from tavern_host.contracts.plugins import PluginState

CONTRACTS = """
from __future__ import annotations
from tavern_host import CallContext, PluginContext, ServiceInterface, Veto, acts, hookspec, reads

class SearchIndex(ServiceInterface, name="acme-search.index", version=2):
    @reads
    async def find(self, words: str) -> list[str]:
        '''Return the entries that have these words.'''

    @reads
    async def count(self) -> int:
        '''Return how much there is.'''

    @acts("acme-search.index:write", "Change the search index.")
    async def add(self, text: str, *, call: CallContext | None = None) -> None:
        '''Add a text.'''

    @acts("acme-search.index:write", "Change the search index.", since=2)
    async def clear(self, *, call: CallContext | None = None) -> str:
        '''Take everything out; say by whom.'''

@hookspec(
    permission="hook:plugin:acme-search:before-find", level="intercept", policy="filter",
    description="Change what is searched for.",
)
def acme_search_before_find(words: str, context: PluginContext) -> str | Veto | None:
    '''Return other words.'''
"""

CODE = """
from tavern_host import hookimpl, service_info, ServiceKey

CONTEXTS = []

class Index:
    def __init__(self, context):
        self.context = context
        self.texts = []

    async def find(self, words):
        words = await self.context.hooks.filter("acme_search_before_find", words)
        return [text for text in self.texts if words in text]

    async def count(self):
        return len(self.texts)

    async def add(self, text, *, call=None):
        self.texts.append(text)

    async def clear(self, *, call=None):
        self.texts.clear()
        return "cleared by the index"

@hookimpl
def tavern_register_services():
    from .contracts import SearchIndex
    return [service_info(ServiceKey(SearchIndex), Index)]

@hookimpl
async def tavern_startup(context):
    CONTEXTS.append(context)
"""

WRITES = {"name": "acme-search.index:write", "level": "intercept", "allows": "Change the search index."}
PUBLISHED_HOOK = {
    "spec": "contracts:acme_search_before_find",
    "permission": "hook:plugin:acme-search:before-find",
    "level": "intercept",
    "allows": "Change what is searched for.",
}
PUBLISHES: dict[str, Any] = {
    "services": [{"name": "acme-search.index", "interface": "contracts:SearchIndex", "permissions": [WRITES]}],
    "hooks": [PUBLISHED_HOOK],
}
NEEDS = {"plugins": {"acme-search": ">=1"}}


def publisher(
    parent: Path, code: str = CODE, contracts: str = CONTRACTS, publishes: dict[str, Any] | None = None
) -> Path:
    """Write a plugin that publishes a search index, and a hook on what is searched for."""
    folder = make_plugin(
        parent,
        "acme-search",
        code,
        hooked=["tavern_register_services", "tavern_startup"],
        publishes=PUBLISHES if publishes is None else publishes,
    )
    write(folder / "contracts.py", contracts)
    return folder


def changed(kind: str, **values: Any) -> dict[str, Any]:
    """Return the published declarations with values of the first item of a kind replaced."""
    return {**PUBLISHES, kind: [{**PUBLISHES[kind][0], **values}]}


# --- services ------------------------------------------------------------------------------------------


async def test_published_services_are_used_by_name(tmp_path: Path) -> None:
    use = {"services": {"use": ["acme-search.index:write"]}}
    user = contextual(tmp_path, requires=NEEDS, permissions=use)
    async with host_with(tmp_path / "p", publisher(tmp_path), user):
        index = context_of().services.get("acme-search.index")
        await index.add("a red fox")
        assert await index.find("fox") == ["a red fox"]
        assert context_of().services.has("acme-search.index")
    async with host_with(tmp_path / "p", tmp_path / "acme-search", contextual(tmp_path, requires=NEEDS)):
        index = context_of().services.get("acme-search.index")
        assert await index.find("fox") == []
        with pytest.raises(PermissionDenied, match="acme-search.index.add: it needs the permission services.use"):
            await index.add("a red fox")


USE, OVERRIDE_IT, HOOK = "acme-search.index:write", "acme-search.index", "hook:plugin:acme-search:before-find"


def asks(use: str, override: str, hook: str) -> dict[str, Any]:
    """Return permissions for what another plugin publishes."""
    return {"services": {"use": [use], "override": [override]}, "hooks": [hook]}


def test_a_plugin_requires_what_it_builds_on(tmp_path: Path) -> None:
    wrong = asks("acme-search.index:wirte", "acme-search.indx", "hook:plugin:acme-search:before-fnd")
    users = {
        "whole": {"requires": NEEDS, "permissions": asks(USE, OVERRIDE_IT, HOOK)},
        "requiring-nothing": {"permissions": asks(USE, OVERRIDE_IT, HOOK)},
        "misspelled": {"requires": NEEDS, "permissions": wrong},
    }
    folders = [make_plugin(tmp_path, name, **manifest) for name, manifest in users.items()]
    host = Host(tmp_path / "p", plugins=[publisher(tmp_path), *folders])
    host.link()
    assert host.plugin("whole").state is PluginState.NEEDS_REVIEW
    assert {p.name: (p.level, p.description) for p in host.plugin("whole").permissions} == {
        HOOK: ("intercept", "Change what is searched for."),
        f"services.override:{OVERRIDE_IT}": ("override", "Replace the service acme-search.index for everybody."),
        f"services.use:{USE}": ("intercept", "Change the search index."),
    }
    assert said_of(host, "requiring-nothing") == [
        f'permissions.{key}: {name!r} is of a plugin that is not required (add acme-search: ">=…" to requires.plugins)'
        for key, name in (("hooks", HOOK), ("services.override", OVERRIDE_IT), ("services.use", USE))
    ]
    assert said_of(host, "misspelled") == [
        f"permissions.hooks: there is no permission 'hook:plugin:acme-search:before-fnd' (did you mean {HOOK}?)",
        f"permissions.services.override: there is no service 'acme-search.indx' (did you mean {OVERRIDE_IT}?)",
        f"permissions.services.use: there is no permission 'acme-search.index:wirte' (did you mean {USE}?)",
    ]
    without = Host(tmp_path / "p", plugins=folders[:1])
    without.link()  # what nobody publishes cannot be judged
    assert problems_of(without, "whole") == [
        "it requires the plugin acme-search, which is not installed (install the plugin acme-search)"
    ]


# --- hooks ---------------------------------------------------------------------------------------------

HOOKED = """
from tavern_host import hookimpl

@hookimpl
async def acme_search_before_find(words):
    return words.removeprefix("please ")
"""


def polite(parent: Path, code: str = HOOKED) -> Path:
    return make_plugin(parent, "polite", code, requires=NEEDS, permissions={"hooks": [HOOK]})


async def test_another_plugin_implements_a_published_hook(tmp_path: Path) -> None:
    folders = [publisher(tmp_path), polite(tmp_path), contextual(tmp_path, requires=NEEDS)]
    async with host_with(tmp_path / "p", *folders, trust=["acme-search"]) as host:
        index = _view(host)
        await index.add("a red fox")
        assert await index.find("please fox") == []
        await host.grant("polite")
        assert await index.find("please fox") == ["a red fox"]
        await host.revoke("polite")
        assert await index.find("please fox") == []
        await host.grant("acme")
        with pytest.raises(Forbidden, match="acme may not call acme_search_before_find: only the provider of"):
            await context_of().hooks.filter("acme_search_before_find", "fox")


async def test_a_changed_published_hook_costs_its_implementers_only(tmp_path: Path) -> None:
    folder, hooked = publisher(tmp_path), polite(tmp_path)
    async with host_with(tmp_path / "p", folder, hooked) as host:
        write(folder / "contracts.py", CONTRACTS.replace("before_find(words", "before_find(text"))
        await host.reload("acme-search")
        assert problems_of(host, "acme-search") == []
        (told,) = problems_of(host, "polite")
        assert "the hook acme_search_before_find has no argument 'words'" in told
        write(hooked / "__init__.py", HOOKED.replace("words", "text"))
        await host.reload("polite")
        await _view(host).add("a red fox")
        assert await _view(host).find("please fox") == ["a red fox"]


# --- when the publisher goes ---------------------------------------------------------------------------


async def test_views_of_a_changed_interface_must_be_renewed(tmp_path: Path) -> None:
    folder = publisher(tmp_path)
    async with host_with(tmp_path / "p", folder) as host:
        kept = _view(host)
        declared = "    @reads\n    async def size(self) -> int:\n        '''Return a size.'''\n\n"
        write(folder / "contracts.py", CONTRACTS.replace("\n@hookspec(", f"{declared}\n@hookspec("))
        size = "    async def size(self): return 7\n\n    async def count"
        write(folder / "__init__.py", CODE.replace("    async def count", size))
        await host.reload("acme-search")
        assert problems_of(host, "acme-search") == []
        with pytest.raises(ServiceUnavailable, match="was replaced; get it again"):
            await kept.find("fox")
        assert await _view(host).size() == 7


def _view(host: Host) -> Any:
    """Return the operator's view of the published service."""
    names = [name for name in sys.modules if re.fullmatch(r"tavern_plugins\.acme_search(_\d+)?\.contracts", name)]
    contracts = [sys.modules[name] for name in names]
    return host.services.get(ServiceKey(contracts[-1].SearchIndex))


# --- what is not published -----------------------------------------------------------------------------


NAME, PERMISSION = "publishes.services", "hook:server:workflow:before-execute"
FOREIGN = [
    (changed("services", name="search.index"), f"{NAME}: 'search.index' must be 'acme-search.' and a camelCase word"),
    (
        changed("services", permissions=[{"name": "toolManager:execute", "allows": "x"}]),
        f"{NAME}: 'toolManager:execute' must be 'acme-search.index:' and a word",
    ),
    (
        changed("hooks", spec="contracts:tavern_before_execute"),
        "publishes.hooks: 'contracts:tavern_before_execute' must be 'module:acme_search_…'",
    ),
    (
        changed("hooks", permission=PERMISSION),
        f"publishes.hooks: '{PERMISSION}' must be 'hook:plugin:acme-search:' and a word",
    ),
]


def test_published_names_bear_the_plugins_name(tmp_path: Path) -> None:
    for number, (publishes, told) in enumerate(FOREIGN):
        host = host_with(tmp_path / "p", publisher(tmp_path / f"{number}", publishes=publishes))
        host.link()
        assert messages_of(host, "acme-search") == [told]


WRONG_CONTRACTS = [
    ("class SearchIndex", "class OtherIndex", "there is no handler"),
    ("(self, words: str)", "(self, words)", "find: words has no annotation"),
    ("words: str) -> list[str]", "words: set[str]) -> list[str]", "find: words: set[str] is not a wire type"),
    ("async def count(self)", "def count(self)", "count: it must be `async def`"),
    (
        "async def count(self)",
        "async def count(self, *, call: CallContext | None = None)",
        "count: a method that reads does not take `call`",
    ),
    ("    @reads\n    async def count", "    async def count", "count is not marked with @reads or @acts"),
    (
        "    async def add(self, text: str, *, call: CallContext | None = None)",
        "    async def add(self, text: str)",
        "add: a method that acts takes `*, call: CallContext | None = None`",
    ),
    ("since=2", "since=3", "clear: since=3 is not a version of the interface (2)"),
    (
        '"Change the search index.")\n    async def add',
        '"Read only.")\n    async def add',
        "the permission acme-search.index:write is not the same in code and manifest",
    ),
    ('name="acme-search.index"', 'name="acme-search.other"', "the interface is named 'acme-search.other'"),
    ("words: str, context: PluginContext", "words: str", "it must take `context: PluginContext`"),
    ("-> str | Veto | None", "-> int | Veto | None", "a filter returns what its first argument is, Veto or None"),
    (
        'level="intercept", policy',
        'level="add", policy',
        "permission, level and sentence are not the same in code and manifest",
    ),
    ('policy="filter",', 'policy="filter", caller="toolManager",', "leave `caller` out"),
]


async def test_published_contracts_keep_the_rules(tmp_path: Path) -> None:
    folders = []
    for number, (find, instead, _) in enumerate(WRONG_CONTRACTS):
        assert find in CONTRACTS
        folder = publisher(tmp_path / f"{number}", contracts=CONTRACTS.replace(find, instead))
        for file in folder.iterdir():
            text = file.read_text().replace("acme-search", f"acme{number}-search")
            file.write_text(text.replace("acme_search", f"acme{number}_search"))
        folders.append(folder.rename(tmp_path / f"acme{number}-search"))
    async with host_with(tmp_path / "p", *folders) as host:
        with Failures() as failures:
            for number, (_, instead, told) in enumerate(WRONG_CONTRACTS):
                with failures.row(instead):
                    name = f"acme{number}-search"
                    assert host.plugin(name).state is PluginState.FAILED
                    found = problems_of(host, name)
                    assert any(told.replace("acme-search", name) in problem for problem in found), found


async def test_two_plugins_cannot_publish_one_hook(tmp_path: Path) -> None:
    """`acme` with `search_before_find`, and `acme-search` with `before_find`, would have one name for it."""
    hook = {**PUBLISHES["hooks"][0], "permission": "hook:plugin:acme:search-before-find"}
    spec = CONTRACTS[: CONTRACTS.index("class SearchIndex")] + CONTRACTS[CONTRACTS.index("@hookspec(") :]
    other = make_plugin(tmp_path, "acme", "", publishes={"hooks": [hook]})
    write(other / "contracts.py", spec.replace("hook:plugin:acme-search:before-find", hook["permission"]))
    async with host_with(tmp_path / "p", other, publisher(tmp_path)) as host:
        assert host.plugin("acme").state is PluginState.STARTED
        assert messages_of(host, "acme-search")[0] == (
            "the hook acme_search_before_find is there already, called by plugin:acme"
        )
        assert (host.plugin("acme-search").problems[0].file or "").endswith("/plugin.yaml")
