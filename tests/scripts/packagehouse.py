"""Package indexes for tests: wheels, sdists and npm packages made on the spot, served from 127.0.0.1."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput
from tavern_scripts.environments.environments import BuildLimits, Environment, Environments
from tavern_scripts.environments.manifests import Manifest, Manifests
from tavern_scripts.network.proxy_limits import Connection
from tavern_scripts.policy.languages import Interpreter, Interpreters
from tests.scripts.sandboxes import MB, bubblewrap, stdin_of


@dataclass
class Index:
    """A server of packages: what it has, and what it was asked for."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    packages: dict[str, dict[str, Any]] = field(default_factory=dict)
    moved_to: str = ""
    """Where it says that files lie, if not with itself."""
    asked: list[str] = field(default_factory=list)
    credentials: str = ""

    @property
    def simple(self) -> str:
        """The address of its index of Python packages."""
        return f"http://127.0.0.1:{self.port}/simple"

    @property
    def registry(self) -> str:
        """The address of its registry of JavaScript packages."""
        return f"http://127.0.0.1:{self.port}/npm/"

    def add_wheel(self, name: str, version: str = "1.0", *, code: str = "", requires: str = "") -> str:
        """Add a wheel with one module; return its hash."""
        return self._add(f"{name}-{version}-py3-none-any.whl", wheel(name, version, code=code, requires=requires))

    def add_sdist(self, name: str, files: Mapping[str, str]) -> None:
        """Add a source distribution."""
        inner = {f"{name}-1.0/{path}": text for path, text in files.items()}
        self._add(f"{name}-1.0.tar.gz", tarball({f"{name}-1.0/PKG-INFO": metadata(name, "1.0"), **inner}))

    def add_npm(self, name: str, version: str = "1.0.0", *, code: str = "", **fields: Any) -> str:
        """Add an npm package; return its integrity."""
        manifest = {"name": name, "version": version, "main": "index.js", **fields}
        data = tarball({"package/package.json": json.dumps(manifest), "package/index.js": code})
        file = f"{name}-{version}.tgz"
        self.files[file] = data
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        about = self.packages.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}})
        about["dist-tags"]["latest"] = version
        about["versions"][version] = {**manifest, "dist": {"tarball": file, "integrity": integrity}}
        return integrity

    def _add(self, file: str, data: bytes) -> str:
        self.files[file] = data
        return hashlib.sha256(data).hexdigest()


@asynccontextmanager
async def index() -> AsyncIterator[Index]:
    """Serve packages."""
    house = Index()

    async def answer(request: web.Request) -> web.Response:
        house.asked.append(request.path)
        if house.credentials and request.headers.get("Authorization") != house.credentials:
            return web.Response(status=401)
        base = house.moved_to or f"http://127.0.0.1:{house.port}"
        parts = request.path.strip("/").split("/")
        if parts[0] == "files" and parts[-1] in house.files:
            return web.Response(body=house.files[parts[-1]])
        if parts[0] == "simple" and len(parts) == 2:
            names = [name for name in house.files if name.partition("-")[0].replace("_", "-") == parts[1]]
            links = "".join(
                f'<a href="{base}/files/{name}#sha256={hashlib.sha256(house.files[name]).hexdigest()}">{name}</a>\n'
                for name in names
            )
            if names:
                return web.Response(text=f"<html>{links}</html>", content_type="text/html")
        if parts[0] == "npm" and parts[-1] in house.packages:
            about = json.loads(json.dumps(house.packages[parts[-1]]))
            for version in about["versions"].values():
                version["dist"]["tarball"] = f"{base}/files/{version['dist']['tarball']}"
            return web.json_response(about)
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        house.port = runner.addresses[0][1]
        yield house
    finally:
        await runner.cleanup()


def metadata(name: str, version: str, requires: str = "") -> str:
    """Return the metadata of a Python package."""
    wanted = f"Requires-Dist: {requires}\n" if requires else ""
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}"


def wheel(name: str, version: str, *, code: str = "", requires: str = "") -> bytes:
    """Return a wheel with one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": metadata(name, version, requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return data.getvalue()


def tarball(files: Mapping[str, str]) -> bytes:
    """Return a compressed archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


class Workshop:
    """Environments that are really built, in the sandbox of this machine."""

    def __init__(self, root: Path, house: Index, **options: Any) -> None:
        """Take a folder to work in and where packages come from."""
        self.folder = root / "script"
        self.folder.mkdir(exist_ok=True)
        self.kept = root / "environments"
        self.reports: list[str] = []
        self.connections: list[Connection] = []
        self.launches: list[SandboxLaunch] = []
        self._interpreters = Interpreters()
        self.build_scripts = bool(options.get("build_scripts"))
        machine = {"HOME": str(root), "UV_DEFAULT_INDEX": house.simple, "NPM_CONFIG_REGISTRY": house.registry}
        options = {"machine": machine, "limits": BuildLimits(wall=100, memory=1024 * MB, size=256 * MB), **options}
        self.environments = Environments(self.kept, self.run, record=self.connections.append, **options)

    def run(self, launch: SandboxLaunch) -> AsyncIterator[SandboxOutput]:
        """Run a program in the sandbox."""
        self.launches.append(launch)
        return bubblewrap().run(launch, stdin_of())

    def write(self, name: str, text: str) -> None:
        """Write a file beside the script."""
        (self.folder / name).write_text(text)

    async def find(self, language: Any = "python", code: str | None = None) -> tuple[Manifest, Interpreter]:
        """Return the manifest of the script's dependencies, and its interpreter."""
        manifest = Manifests(build_scripts=self.build_scripts).find(language, self.folder, code, "script.py")
        assert manifest is not None
        return manifest, await self._interpreters.find(language)

    async def ready(self, language: Any = "python", code: str | None = None) -> Environment:
        """Return the environment."""
        manifest, interpreter = await self.find(language, code)
        python = await self._interpreters.find("python")
        return await self.environments.ready(manifest, interpreter, self.reports.append, python=python)

    async def python(self, requirements: str = "alpha") -> Environment:
        """Return the environment for a script with these requirements."""
        self.write("requirements.txt", f"{requirements}\n")
        return await self.ready()

    async def node(self, **dependencies: str) -> Environment:
        """Return the environment for a script of Node.js with these dependencies."""
        self.write("package.json", json.dumps({"type": "module", "dependencies": dependencies}))
        return await self.ready("nodejs")

    async def say(self, environment: Environment, *words: str, language: Any = "python") -> tuple[int | None, str, str]:
        """Run a program in the sandbox with an environment; return its status, what it printed and its errors."""
        interpreter = await self._interpreters.find(language)
        folder = SandboxMount(target="/script", source=str(self.folder))
        launch = SandboxLaunch(
            argv=[*interpreter.argv(256 * MB), *words],
            environment={"PATH": "/usr/bin:/bin", **environment.variables},
            mounts=[folder, *environment.mounts],
            limits=BuildLimits(memory=512 * MB, size=16 * MB).of_launch(),
            address_space=False,
        )
        out, errors, status = b"", b"", None
        async for each in self.run(launch):
            out += each.data if each.kind == "stdout" else b""
            errors += each.data if each.kind in ("stderr", "ended") else b""
            status = each.exit_code if each.kind == "ended" else status
        return status, out.decode(), errors.decode()

    def left(self) -> list[str]:
        """Return the names in the folder of environments besides environments and their locks."""
        return [entry.name for entry in self.kept.iterdir() if entry.name.startswith(".")] if self.kept.exists() else []
