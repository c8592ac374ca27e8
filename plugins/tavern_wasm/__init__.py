"""The first-party plugin `tavern-wasm`: modules of WebAssembly (WASI preview 1) as scripts, run by wasmtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_host import hookimpl

if TYPE_CHECKING:
    from tavern_scripts.api.scripts import ScriptBackendInfo


@hookimpl
def tavern_register_script_backends() -> list[ScriptBackendInfo]:
    """Return the sandbox of scripts in `wasm`."""
    from tavern_scripts.api.scripts import ScriptBackendInfo

    return [
        ScriptBackendInfo(
            name="wasmtime",
            handler="tavern_wasm.backend:Wasmtime",
            description="Modules of WebAssembly, which see what they were granted and nothing else.",
            interpreters={"wasm": ""},
        )
    ]
