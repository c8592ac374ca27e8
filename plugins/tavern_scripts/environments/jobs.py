"""What is run to build an environment: from a manifest and the machine's settings to words, files and hosts. Pure but
for looking for programs; runs nothing."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tavern_scripts.api.scripts import SandboxMount, ScriptErrorType
from tavern_scripts.environments.addresses import Reached
from tavern_scripts.environments.manifests import Manifest, NodeManifest, PythonManifest
from tavern_scripts.environments.node_registries import NodeRegistries, node_registries
from tavern_scripts.environments.packages import read_lock
from tavern_scripts.environments.python_indexes import PythonIndexes, python_indexes
from tavern_scripts.environments.requirements import OWN_SOURCES
from tavern_scripts.environments.tools import Installer, find_node_installer, find_uv
from tavern_scripts.policy.languages import Interpreter
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.layout import installation

BUILT = "/tmp/environment"
"""Where things are installed inside."""

INPUT = "/tavern/input"
"""Where the manifest is seen inside, as it was checked."""

SITE, MODULES = "site", "node_modules"
"""The folders that packages are in, for Python and JavaScript."""

CERTIFICATES = "/tavern/certificates.pem"

_SYSTEM = ("/usr/", "/etc/ssl/", "/etc/pki/", "/etc/ca-certificates/")


@dataclass(frozen=True)
class Job:
    """One thing to be run: `files` are in the folder `INPUT`; `main` is the folder that it fills in `BUILT`, empty
    where what it writes to stdout is wanted instead."""

    argv: tuple[str, ...]
    files: Mapping[str, str]
    mounts: tuple[SandboxMount, ...]
    environment: Mapping[str, str]
    reached: Reached = field(default_factory=Reached)
    main: str = ""


def python_job(
    manifest: PythonManifest, lines: str, interpreter: Interpreter, indexes: PythonIndexes, *, build_scripts: bool
) -> Job:
    """Return how requirements (`lines`) are installed."""
    uv = find_uv()
    argv = [*uv.argv, "pip", "install", "--no-cache", "--target", f"{BUILT}/{SITE}", "--python", interpreter.program]
    argv += [
        "--link-mode",
        "copy",
        "--compile-bytecode",
        "--no-python-downloads",
        "--requirements",
        f"{INPUT}/wanted.txt",
    ]
    if "--hash=" in lines:
        argv.append("--require-hashes")
    return _uv_job(uv, argv, manifest, lines, interpreter, indexes, SITE, build_scripts=build_scripts)


def resolve_job(
    manifest: PythonManifest, lines: str, interpreter: Interpreter, indexes: PythonIndexes, *, build_scripts: bool
) -> Job:
    """Return how it is found out what would be installed: requirements with versions and hashes, on stdout."""
    uv = find_uv()
    lines = re.sub(r" --hash=\S+", "", lines)
    argv = [*uv.argv, "pip", "compile", "--no-cache", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    argv += ["--python", interpreter.program, "--no-python-downloads", f"{INPUT}/wanted.txt"]
    return _uv_job(uv, argv, manifest, lines, interpreter, indexes, "", build_scripts=build_scripts)


def _uv_job(
    uv: Installer,
    argv: list[str],
    manifest: PythonManifest,
    lines: str,
    interpreter: Interpreter,
    indexes: PythonIndexes,
    main: str,
    *,
    build_scripts: bool,
) -> Job:
    files = {"wanted.txt": lines + "\n"}
    if manifest.constraints and "--hash=" not in lines:  # else it was resolved with them
        files["constraints.txt"] = "\n".join(manifest.constraints) + "\n"
        argv += ["--constraints", f"{INPUT}/constraints.txt"]
    if not build_scripts:
        argv += ["--only-binary", ":all:"]
    if indexes.no_index:
        argv.append("--no-index")
    reached = indexes.reached()
    certificates, environment = _certificates(indexes.certificates)
    return Job(
        argv=tuple(argv),
        files=files,
        mounts=(*uv.mounts, *_program(interpreter), *_folders(reached), *certificates),
        environment={**_quiet_uv(), **indexes.variables(), **environment},
        reached=reached,
        main=main,
    )


def lock_job(manifest: PythonManifest, interpreter: Interpreter) -> Job:
    """Return how a lock of uv is made into requirements, which takes no network."""
    uv = find_uv()
    wanted = "".join(f"  {_quoted(line)},\n" for line in manifest.requirements.lines)
    lines = f"dependencies = [\n{wanted}]\n"
    if manifest.requirements.python:
        lines += f"requires-python = {_quoted(manifest.requirements.python)}\n"
    argv = ["export", "--frozen", "--offline", "--no-cache", "--no-header", "--no-annotate", "--no-python-downloads"]
    argv += ["--format", "requirements.txt", "--python", interpreter.program]
    lock = manifest.lock or ""
    name = _project_name(lock)
    if name is None:  # the lock of a script with a block of its own
        block = "".join(f"# {line}\n" for line in lines.splitlines())
        files = {"script.py": f"# /// script\n{block}# ///\n", "script.py.lock": lock}
        argv += ["--script", f"{INPUT}/script.py"]
    else:
        project = f'[project]\nname = "{name}"\nversion = "0"\n{lines}'
        files = {"pyproject.toml": project, "uv.lock": lock}
        argv += ["--no-emit-project", "--no-default-groups", "--directory", INPUT]
    return Job(
        argv=(*uv.argv, *argv),
        files=files,
        mounts=(*uv.mounts, *_program(interpreter)),
        environment={**_quiet_uv(), "UV_NO_CONFIG": "1"},
    )


def node_job(
    manifest: NodeManifest, interpreter: Interpreter, registries: NodeRegistries, *, build_scripts: bool
) -> Job:
    """Return how packages are installed. Raises `Refused` for a lock that asks for what is not allowed."""
    installer = find_node_installer(interpreter)
    files = {"package.json": manifest.packages.package, "npmrc": registries.file(), "empty": ""}
    if manifest.lock is not None:
        files["package-lock.json"] = read_lock(manifest.lock, manifest.lock_source, registries.hosts())
    if installer.name == "bun" and manifest.lock is not None:
        raise Refused(ScriptErrorType.DEPENDENCY, f"{manifest.lock_source}: only npm reads it, and there is no npm")
    reached = registries.reached()
    certificates, environment = _certificates(registries.certificates)
    copied = ["package.json", *(["package-lock.json"] if manifest.lock is not None else [])]
    if installer.name == "npm":
        argv = [*installer.argv, "ci" if manifest.lock is not None else "install", "--no-audit", "--no-fund"]
        argv += ["--no-bin-links", "--omit=dev", "--no-update-notifier", "--cache", "/tmp/npm", "--maxsockets", "16"]
        argv += ["--no-color", "--progress=false", "--loglevel=http"]
        argv += ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
        argv += ["--foreground-scripts"] if build_scripts else ["--ignore-scripts"]
        environment |= {"NPM_CONFIG_USERCONFIG": f"{INPUT}/npmrc", "NPM_CONFIG_GLOBALCONFIG": f"{INPUT}/empty"}
    else:
        argv = [*installer.argv, "install", "--production", "--backend", "copyfile", "--cache-dir", "/tmp/bun"]
        argv += [] if build_scripts else ["--ignore-scripts"]
        copied.append("npmrc=.npmrc")
    return Job(
        argv=("--copy", ",".join(copied), *argv),
        files=files,
        mounts=(*installer.mounts, *certificates),
        environment={"NODE_OPTIONS": "--max-old-space-size=1024", **environment},
        reached=reached,
        main=MODULES,
    )


def machine_settings(
    manifest: Manifest, environment: Mapping[str, str]
) -> tuple[PythonIndexes | NodeRegistries, list[str]]:
    """Return where this machine takes such packages from, and what distinguishes these settings from others."""
    if isinstance(manifest, PythonManifest):
        indexes = python_indexes(environment)
        return indexes, indexes.identity()
    registries = node_registries(environment)
    return registries, registries.identity()


def _quiet_uv() -> dict[str, str]:
    return {
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
        "UV_CONCURRENT_DOWNLOADS": "16",
        "UV_CONCURRENT_INSTALLS": "4",
        "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
    }


def _certificates(path: str | None) -> tuple[list[SandboxMount], dict[str, str]]:
    if not path or not Path(path).is_file():
        return [], {}
    variables = dict.fromkeys(("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE"), CERTIFICATES)
    return [SandboxMount(target=CERTIFICATES, source=os.path.realpath(path))], variables


def _folders(reached: Reached) -> list[SandboxMount]:
    """Return the mounts for folders with packages, none of which is within another."""
    mounts: list[SandboxMount] = []
    for folder in sorted(reached.folders, key=len):
        inner = any(folder.startswith(f"{mount.target}/") for mount in mounts)
        if not inner and not folder.startswith(_SYSTEM) and Path(folder).is_absolute():
            mounts.append(SandboxMount(target=os.path.normpath(folder), source=os.path.realpath(folder)))
    return mounts


def _program(interpreter: Interpreter) -> list[SandboxMount]:
    return [SandboxMount(target=place, source=place) for place in installation(interpreter.program)]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _project_name(lock: str) -> str | None:
    """Return the name that the project has in its lock, None for the lock of a script."""
    for package in tomllib.loads(lock).get("package", []):
        if package.get("source") in OWN_SOURCES:
            return re.sub(r"[^A-Za-z0-9._-]", "", str(package.get("name", ""))) or "script"
    return None
