"""Modules of WebAssembly for tests, as text that wasmtime makes modules of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

wasmtime = pytest.importorskip("wasmtime", reason="needs wasmtime: pip install tavern-host[wasm]")

_TYPES: Mapping[str, str] = {
    "fd_read": "i32 i32 i32 i32",
    "fd_write": "i32 i32 i32 i32",
    "args_get": "i32 i32",
    "args_sizes_get": "i32 i32",
    "environ_get": "i32 i32",
    "environ_sizes_get": "i32 i32",
    "path_open": "i32 i32 i32 i32 i32 i64 i64 i32 i32",
    "path_symlink": "i32 i32 i32 i32 i32",
    "path_link": "i32 i32 i32 i32 i32 i32 i32",
    "path_create_directory": "i32 i32 i32",
    "poll_oneoff": "i32 i32 i32 i32",
}
READ, WRITE = 0x2, 0x40
"""The rights to read and to write a file."""


def module(body: str, *, data: Iterable[tuple[int, str]] = (), pages: int = 2, more: str = "") -> str:
    """Return a command whose function is `body`. `(call $put at size)` writes to stdout, `(call $say number)` a number;
    the memory from 60,000 on is theirs."""
    imports = [
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param {types}) (result i32)))'
        for name, types in _TYPES.items()
    ]
    escaped = [(at, "".join(f"\\{byte:02x}" for byte in text.encode())) for at, text in data]
    texts = [f'(data (i32.const {at}) "{text}")' for at, text in escaped]
    return "\n".join(
        [
            "(module",
            *imports,
            f'(memory (export "memory") {pages})',
            *texts,
            """(func $put (param $at i32) (param $size i32)
              (i32.store (i32.const 60000) (local.get $at)) (i32.store (i32.const 60004) (local.get $size))
              (drop (call $fd_write (i32.const 1) (i32.const 60000) (i32.const 1) (i32.const 60008))))
            (func $say (param $number i32)
              (if (i32.ge_u (local.get $number) (i32.const 10))
                (then (call $say (i32.div_u (local.get $number) (i32.const 10)))))
              (i32.store8 (i32.const 60016) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
              (call $put (i32.const 60016) (i32.const 1)))""",
            more,
            f'(func (export "_start") (local $size i32) {body}))',
        ]
    )


ECHO = module(
    """(loop $on
      (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 32768))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $size (i32.load (i32.const 8)))
      (if (local.get $size) (then (call $put (i32.const 1024) (local.get $size)) (br $on))))"""
)
"""Writes what it reads."""

ENDLESS = module("(loop $on (br $on))")
SLEEPING = module(
    """(call $put (i32.const 200) (i32.const 6))
      (i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 3600000000000))
      (drop (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))""",
    data=[(200, "began\n")],
)
"""Says that it began, and sleeps for an hour in the host, where no epoch reaches it."""

FLOOD = module("(loop $on (call $put (i32.const 0) (i32.const 32768)) (br $on))")


def opening(path: str, *, descriptor: int, writes: bool = False) -> str:
    """Return a module that opens a file, and prints the number of the error, 0 for none."""
    rights, create = (WRITE, 1) if writes else (READ, 0)
    return module(
        f"""(call $say (call $path_open (i32.const {descriptor}) (i32.const 1) (i32.const 1024) (i32.const {len(path)})
          (i32.const {create}) (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 512)))""",
        data=[(1024, path)],
    )


def writing(path: str, *, descriptor: int, pieces: int, files: int = 1) -> str:
    """Return a module that writes pieces of 64 KiB into each of some files, whose names end with a letter, and prints
    the number of the last error."""
    return module(
        f"""(loop $file
          (i32.store8 (i32.const {1024 + len(path)}) (i32.add (i32.const 97) (global.get $files)))
          (drop (call $path_open (i32.const {descriptor}) (i32.const 1) (i32.const 1024) (i32.const {len(path) + 1})
            (i32.const 1) (i64.const {WRITE}) (i64.const 0) (i32.const 0) (i32.const 512)))
          (local.set $size (i32.const 0))
          (loop $on
            (i32.store (i32.const 520) (i32.const 0)) (i32.store (i32.const 524) (i32.const 65536))
            (global.set $last (call $fd_write (i32.load (i32.const 512)) (i32.const 520) (i32.const 1) (i32.const 528)))
            (local.set $size (i32.add (local.get $size) (i32.const 1)))
            (br_if $on (i32.and (i32.eqz (global.get $last)) (i32.lt_u (local.get $size) (i32.const {pieces})))))
          (global.set $files (i32.add (global.get $files) (i32.const 1)))
          (br_if $file (i32.lt_u (global.get $files) (i32.const {files}))))
        (call $say (global.get $last))""",
        data=[(1024, path)],
        more="(global $files (mut i32) (i32.const 0)) (global $last (mut i32) (i32.const 0))",
    )


def put(folder: Path, name: str, text: str) -> Path:
    """Write a module into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(wasmtime.wat2wasm(text))
    return file
