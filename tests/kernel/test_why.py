"""`why` explains services, hooks, permissions and plugins from what the host knows at that moment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.forwarding import overriding
from plugin_maker import host_with, make_plugin

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_llm.api.llm import Llm

HOOKED = """
from tavern_host import hookimpl

@hookimpl
def tavern_before_execute(request):
    return None
"""

OVERRIDING = overriding("LLM", "    pass")
OVERRIDES_LLM = {"services": {"override": ["llm"]}}


async def test_a_service_is_explained_by_its_stack(tmp_path: Path, operator_folders: Path) -> None:
    folders = [make_plugin(tmp_path, name, OVERRIDING, permissions=OVERRIDES_LLM) for name in ("acme", "other")]
    version = f"(version {Llm.service_version})"
    async with Host(tmp_path / "p", plugins=folders) as host:
        assert host.why("service:llm").answer == f"tavern-llm provides llm {version}"
        await host.grant("acme")
        why = host.why("service:llm")
        assert why.answer == f"acme overrides llm {version}"
        assert why.facts[0].startswith("tavern-llm provides it with tavern_llm.service:LlmService, since 20")
        assert why.facts[1].startswith(
            f"acme overrides version {Llm.service_version} with tavern_plugins.acme:Mine, since 20"
        )
        assert ", granted by the operator at 20" in why.facts[1]
        await host.grant("other")
        why = host.why("service:llm")
        assert why.answer == f"tavern-llm provides llm {version}"
        assert any("acme and other both override llm; neither is used (put them in order" in f for f in why.facts)
    without = Host(tmp_path / "p", without=["tavern-llm"])
    without.link()
    assert without.why("service:llm").answer == "llm has no provider"


async def test_a_hook_is_explained_by_caller_and_implementations(tmp_path: Path) -> None:
    first, second = (
        make_plugin(tmp_path, name, HOOKED, hooked=["tavern_before_execute"]) for name in ("acme", "other")
    )
    async with host_with(tmp_path / "p", first, second, trust=["acme"]) as host:
        why = host.why("hook:tavern_before_execute")
        assert why.answer == "tavern_before_execute is implemented by acme"
        assert why.facts == [
            "called by the provider of executionEngine, tavern-engine, policy veto; "
            "needs hook:server:workflow:before-execute (intercept)",
            f"1. acme ({first / '__init__.py'}:4), granted since the operator trusts the plugin",
            "other (needs-review) asks for hook:server:workflow:before-execute: not granted",
        ]
        await host.grant("other")
        assert host.why("hook:tavern_before_execute").answer == "tavern_before_execute is implemented by other, acme"


async def test_a_permission_is_explained_by_its_askers(tmp_path: Path) -> None:
    host = Host(tmp_path / "p", plugins=[make_plugin(tmp_path, "acme", permissions={"ui": {"wrap": ["ui:BaseNode"]}})])
    host.link()
    why = host.why("permission:ui.wrap:ui:BaseNode")
    sees = "See what every node on the canvas is given, and change how it looks and behaves. (level intercept)"
    assert (why.answer, why.facts) == (sees, ["acme (needs-review) asks for ui.wrap:ui:BaseNode: not granted"])
    assert host.why("permission:ui.wrap:ui:MainMenu").facts == ["no plugin asks for it"]
    saves = "See settings before they are saved, and change or refuse them. (level intercept)"
    for name in ("settings:save:before", "settings:before-save"):
        for written in (name, f"hook:client:{name}"):  # all are its name
            assert host.why(f"permission:{written}").answer == saves


async def test_a_plugin_is_explained_by_state_and_grants(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", HOOKED, hooked=["tavern_before_execute"])
    needing = make_plugin(tmp_path, "needing", requires={"plugins": {"acme": ">=1"}})
    async with Host(tmp_path / "p", plugins=[folder, needing]) as host:
        why = host.why("plugin:acme")
        assert why.answer.startswith(
            "acme is needs-review: it asks for hook:server:workflow:before-execute, code:sha256:"
        )
        assert "needing requires it" in why.facts
        assert "hook:server:workflow:before-execute (intercept): not granted" in why.facts
        await host.grant("acme")
        why = host.why("plugin:acme")
        assert why.answer == "acme is started: nothing is wrong with it"
        assert any(
            f.startswith("hook:server:workflow:before-execute (intercept): granted by the operator") for f in why.facts
        )
        assert "it has the hook tavern_before_execute" in why.facts
        assert any(fact.startswith("import took ") for fact in why.facts)


UNKNOWN: list[tuple[str, type[Exception], str]] = [
    ("service:toolManger", NotFound, "there is no service 'toolManger'; did you mean toolManager?"),
    ("hook:tavern_befor_execute", NotFound, "there is no hook 'tavern_befor_execute'; did you mean"),
    ("permission:services.use:llm:complet", NotFound, "there is no permission 'services.use:llm:complet'; did you"),
    ("plugin:tavern-lm", NotFound, "there is no plugin 'tavern-lm'; did you mean tavern-llm?"),
    ("weather:today", InvalidInput, "'weather:today' must be one of service:NAME, hook:NAME, permission:NAME"),
    ("service", InvalidInput, "'service' must be one of"),
    ("", InvalidInput, "'' must be one of"),
]


def test_what_cannot_be_explained_is_told(tmp_path: Path) -> None:
    host = Host(tmp_path / "p")
    host.link()
    for subject, error, told in UNKNOWN:
        with pytest.raises(error, match=f"^{re.escape(told)}"):
            host.why(subject)


async def test_who_takes_part_in_a_service_or_a_hook_is_data_too(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", HOOKED, permissions={"hooks": ["hook:server:workflow:before-execute"]})
    async with Host(tmp_path / "p", plugins=[folder], trust=["acme"]) as host:
        hook, service = host.why("hook:tavern_before_execute"), host.why("service:executionEngine")
    (one,) = [one for one in hook.involved if one.plugin == "acme"]
    assert one.role == "implements" and "acme" in one.where and "trust" in one.granted
    assert [(one.plugin, one.role) for one in service.involved] == [("tavern-engine", "provides")]
