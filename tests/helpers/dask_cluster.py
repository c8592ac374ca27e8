"""A Dask cluster for tests: a scheduler and two workers, as the processes that the plugin starts, by their address."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from .ports import free_port

TESTS = Path(__file__).parents[1]
FOLDERS = [TESTS / "engine/plugins/acme_nodes", TESTS / "real/dask/plugins/acme_far"]
TRUST = ["acme-nodes", "acme-far"]
_ROLES = ("scheduler", "worker", "client")


class TestCluster:
    """The processes, and the settings of a host that uses them."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        from distributed.security import Security

        made = Security.temporary()
        self._security = {
            f"tls_{role}_{part}": getattr(made, f"tls_{role}_{part}") for role in _ROLES for part in ("key", "cert")
        } | {"tls_ca_file": made.tls_ca_file}
        self._folder = folder
        self._port = free_port()  # which nobody else is given while the scheduler is killed
        self.workers: list[subprocess.Popen[str]] = []
        self._others: list[subprocess.Popen[str]] = []
        names = {"tlsCa": "tls_ca_file", "tlsCert": "tls_client_cert", "tlsKey": "tls_client_key"}
        self.settings: dict[str, Any] = {}
        for key, name in names.items():
            (folder / key).write_text(self._security[name])
            self.settings[f"extensions.tavern-dask.{key}"] = str(folder / key)
        self.settings["extensions.tavern-dask.nodes"] = "pure"
        self.address = ""
        self.start()

    def start(self) -> None:
        """Start the scheduler, at the address of the one before, and two workers."""
        self.scheduler, self.address = self._begin("scheduler", "")
        self.settings["extensions.tavern-dask.scheduler"] = self.address
        for _ in range(2):
            self.start_worker()

    def start_again(self) -> None:
        """Start what was killed."""
        if self.scheduler.poll() is not None:
            self.start()

    def start_worker(self) -> None:
        """Start one more worker, and return when it is there."""
        self.workers.append(self._begin("worker", self.address)[0])

    def kill_worker(self) -> None:
        """Kill the worker that is there for the longest time, and start another."""
        killed = self.workers.pop(0)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        self.start_worker()

    def kill(self) -> None:
        """Kill all that are left."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.communicate()
        self.workers.clear()

    def _begin(self, role: str, scheduler: str) -> tuple[subprocess.Popen[str], str]:
        about = {
            "role": role,
            "scheduler": scheduler,
            "security": self._security,
            "folder": str(self._folder),
            "port": self._port,
        }
        command = [sys.executable, "-m", "tavern_dask.local_process"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(about) + "\n")
        process.stdin.flush()
        address = process.stdout.readline().strip()
        assert address, f"the {role} did not start"
        return process, address


@cache
def shared_cluster() -> TestCluster:
    """Return the cluster that all tests of this process share; it ends with it."""
    folder = tempfile.TemporaryDirectory(prefix="tavern-dask-tests-")
    cluster = TestCluster(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(cluster.kill)
    return cluster
