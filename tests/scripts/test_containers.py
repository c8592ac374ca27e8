"""What a launch is as arguments of an engine of containers, and which images an operator may name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_containers import tavern_register_script_backends
from tavern_containers.arguments import Engine, create_arguments, hidden_variables
from tavern_host import Host
from tavern_host.contracts.errors import Misconfigured
from tavern_host.projects import make_project
from tavern_scripts.api.scripts import SandboxLaunch
from tavern_scripts.api.staging import StagingError
from tests.scripts.sandboxes import LIMITS, read, staged

DIGEST = f"docker.io/library/python@sha256:{'0' * 64}"


def launch_of(**others: Any) -> SandboxLaunch:
    fields = {
        "argv": ["python3", "-B", "/script/main.py", "--fast"],
        "environment": {"HOME": "/tmp", "TAVERN_CONFIG_API_KEY": "a secret"},
        "folder": "/script",
        "mounts": [read("/script", "/home/ada/scripts"), staged("/output", "/home/ada/output")],
        "limits": LIMITS,
    }
    return SandboxLaunch(**{**fields, **others})


def arguments_of(launch: SandboxLaunch, engine: Engine | None = None) -> list[str]:
    engine = engine or Engine("/usr/bin/podman", cpus=1.5)
    return create_arguments(engine, DIGEST, launch, {"/output": Path("/tmp/box/0")}, (65534, 65534))


def test_a_container_has_what_was_granted_and_nothing_else() -> None:
    assert arguments_of(launch_of()) == [
        *("/usr/bin/podman", "create", "--interactive", "--pull=never", "--network=none", "--ipc=none", "--read-only"),
        *("--cap-drop=all", "--security-opt=no-new-privileges", "--user=65534:65534", "--log-driver=none"),
        *("--memory=134217728", "--memory-swap=134217728", "--pids-limit=16", "--cpus=1.5"),
        *("--ulimit=cpu=11:12", "--ulimit=core=0", "--ulimit=nofile=64", "--ulimit=fsize=8388608"),
        *("--hostname=sandbox", "--workdir=/script", f"--label=tavern-host={os.getpid()}"),
        "--tmpfs=/tmp:rw,nosuid,nodev,mode=1777,size=4194304",
        "--mount=type=bind,source=/home/ada/scripts,target=/script,readonly",
        "--mount=type=bind,source=/tmp/box/0,target=/output",
        *("--env=HOME=/tmp", "--env=TAVERN_CONFIG_API_KEY", "--entrypoint=python3", DIGEST),
        *("-B", "/script/main.py", "--fast"),
    ]


def test_the_only_network_is_the_socket_of_the_proxy(tmp_path: Path) -> None:
    words = arguments_of(launch_of(proxy=str(tmp_path / "proxy.sock")))
    assert f"--mount=type=bind,source={tmp_path}/proxy.sock,target=/run/tavern/proxy.sock,readonly" in words
    assert [word for word in words if word.startswith("--net")] == ["--network=none"]


def test_settings_of_tools_stand_in_no_list_of_processes() -> None:
    assert "secret" not in " ".join(arguments_of(launch_of()))
    assert hidden_variables(launch_of()) == {"TAVERN_CONFIG_API_KEY": "a secret"}


def test_an_ordinary_user_of_podman_is_the_same_inside() -> None:
    assert "--userns=keep-id" in arguments_of(launch_of(), Engine("podman", keeps_id=True))


def test_what_would_be_another_argument_is_refused() -> None:
    rows: list[dict[str, Any]] = [
        {"mounts": [read("/script", "/home/a,source=/etc")]},
        {"mounts": [read("/script", '/home/"a')]},
        {"mounts": [read("/script/../etc", "/home")]},
        {"mounts": [read("script", "/home")]},
        {"environment": {"A=B": "c"}},
        {"environment": {"": "c"}},
        {"environment": {"A": "\0"}},
    ]
    with Failures() as failures:
        for fields in rows:
            with failures.row(str(fields)), pytest.raises(StagingError):
                arguments_of(launch_of(**fields))


async def test_an_image_has_a_digest_and_a_language(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"python": "docker.io/library/python:3.13"},
        {"python": "python"},
        {"python": f"--privileged@sha256:{'0' * 64}"},
        {"python": 1},
        {"wasm": DIGEST},
        {"cobol": DIGEST},
        [DIGEST],
    ]
    make_project(tmp_path / "project")
    with Failures() as failures:
        for images in rows:
            with failures.row(str(images)):
                settings = {"extensions.tavern-containers.images": images}
                async with Host(tmp_path / "project", settings=settings) as host:
                    with pytest.raises(Misconfigured, match="with an image and its digest"):
                        tavern_register_script_backends(host._manager.active["tavern-containers"].context)
