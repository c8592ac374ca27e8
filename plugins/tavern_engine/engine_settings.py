"""Reads the settings of the engine, each when it is needed: they may change while the host runs."""

from __future__ import annotations

import os

from tavern_engine.cache.cache import DEFAULT_LIMIT as CACHE_BYTES
from tavern_host import PluginContext

_MEGABYTE = 2**20


class EngineSettings:
    """The settings of the engine in one project, with their defaults. Sizes are in bytes."""

    def __init__(self, context: PluginContext) -> None:
        self._settings = context.settings

    def concurrent_runs(self) -> int:
        """Return how many runs run at a time."""
        return self._number("maxConcurrentRuns", 4, least=1)

    def isolated_processes(self) -> int:
        """Return how many nodes run in processes of their own at a time."""
        return self._number("maxIsolatedProcesses", 0, least=0) or os.cpu_count() or 1

    def queued_runs(self) -> int:
        """Return how many runs may wait."""
        return self._number("maxQueuedRuns", 1000, least=1)

    def cache_bytes(self) -> int:
        """Return the size of the cache in memory; 0 switches it off."""
        return self._number("cacheMegabytes", CACHE_BYTES // _MEGABYTE, least=0) * _MEGABYTE

    def remembered_bytes(self) -> int:
        """Return how much memory finished runs may take."""
        return self._number("rememberRunsMegabytes", 512, least=0) * _MEGABYTE

    def disk_cache_bytes(self) -> int:
        """Return the size of the cache on disk."""
        return self._number("cacheDiskMegabytes", 1024, least=1) * _MEGABYTE

    def caches_on_disk(self) -> bool:
        """Return whether outputs are written to and read from the cache on disk."""
        return self._settings.get("cacheOnDisk", False) is True

    def kept_runs_seconds(self) -> float:
        """Return for how many seconds finished runs are kept."""
        return self._number("keepRunsDays", 30, least=0) * 86400.0

    def kept_runs_bytes(self) -> int:
        """Return how much space kept runs may take."""
        return self._number("keepRunsMegabytes", 1024, least=0) * _MEGABYTE

    def resumes_abandoned(self) -> bool:
        """Return whether a run that a crashed host left behind is resumed; else it counts as interrupted."""
        return bool(self._settings.get("onRestart", "resume") != "interrupt")

    def _number(self, key: str, default: int, *, least: int) -> int:
        value = self._settings.get(key, default)
        return int(value) if isinstance(value, int | float) and value >= least else default
