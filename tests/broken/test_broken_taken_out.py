"""Broken plugins that run can be disabled, enabled and revoked while the host runs, and nothing of them stays."""

from __future__ import annotations

from broken_corpus import CORPUS
from helpers.repetition import repetitions
from inn import Inn, everything_else_works
from saying import names, prepare

from tavern_host.contracts.plugins import PluginState

RUNNING = [row for row in CORPUS if row.running]
NAMES = [name for row in RUNNING for name in row.running]


async def test_broken_plugins_are_disabled_enabled_and_revoked(inn: Inn) -> None:
    async with await prepare(inn, RUNNING) as host:
        for row in RUNNING:
            if row.use is not None:
                await row.use(host)
        for name in NAMES[:: repetitions(3, 1)]:
            gone = await host.disable(name)
            assert (gone.state, gone.contributions) == (PluginState.DISABLED, {}), name
            if NAMES.index(name) % repetitions(24, 1) == 0:
                await everything_else_works(host, names(RUNNING))
            assert (await host.enable(name)).state is PluginState.STARTED, name
        granted = [n for n in NAMES if any(p.level != "add" for p in host.plugin(n).permissions)]
        assert len(granted) > len(NAMES) / 2
        for name in granted[:: repetitions(3, 1)]:
            gone = await host.revoke(name)
            assert (gone.state, gone.contributions) == (PluginState.NEEDS_REVIEW, {}), name
        await everything_else_works(host, names(RUNNING))
