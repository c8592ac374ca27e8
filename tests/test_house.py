"""The counters of `tests.house` see what they are for; that its limits hold is a step of `.ci/run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import house


def test_code_is_counted_without_docstrings_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text('"""Two\nlines."""\n\n# why\nx = """a\nb"""\ndef f():\n    "doc"\n    return 1  # one\n')
    assert house.code_lines(file) == {5, 6, 7, 9}


def test_a_long_function_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "ROOT", tmp_path)
    file = tmp_path / "sample.py"
    file.write_text("def f():\n" + "    x = 1\n" * 60 + "\n\ndef g():\n" + "    x = 1\n" * 59)
    assert [*house.long_functions(file)] == ["sample.py:1 f has 61 lines"]


def test_every_line_of_a_long_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "PRODUCT", (tmp_path,))
    (tmp_path / "long.py").write_text("# why\n" * 450 + "\n")
    (tmp_path / "short.py").write_text("x = 1\n" * 450)
    assert [*house.long_files()] == ["long.py: 451 lines, at most 450"]


def test_test_files_of_one_name_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "ROOT", tmp_path)
    for name in ("tests/a/test_x.py", "contrib/one/tests/test_x.py", "tests/test_y.py", "tests/a/bench.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tests" / "bench.py").write_text("")
    assert [*house.shared_names()] == ["tests/a/test_x.py and contrib/one/tests/test_x.py"]


def test_imports_for_type_checking_count(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.b import c\ndef f():\n    import d\n"
    )
    assert house.imports(file, ["a.b", "a.b.c", "d", "typing"]) == {"a.b.c", "d", "typing"}


def test_circles_and_upward_imports_are_found() -> None:
    assert [*house.circles({"a": {"b"}, "b": {"c"}, "c": {"b"}})] in (
        ["a circle of imports: b → c"],
        ["a circle of imports: c → b"],
    )
    graph = {"tavern_host.storage.files": {"tavern_host.cli.main", "tavern_host.contracts.errors"}}
    assert [*house.upward_imports(graph)] == [
        "tavern_host.storage.files imports tavern_host.cli.main, which stands in a higher room"
    ]
    with pytest.raises(LookupError, match="stands in no room"):
        house.room_of("tavern_host.attic.box")


def test_what_asks_the_machine_for_the_time_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "PRODUCT", (tmp_path / "plugins",))
    monkeypatch.setattr(house, "OTHER_CLOCKS", ("plugins/runners",))
    text = (
        "from time import monotonic, perf_counter\nimport time\nfrom functools import partial\n"
        "at: float = field(default_factory=time.time)\ndef f(clock=time.monotonic): return time.time_ns() // 1000\n"
        "began, now, there = time.perf_counter(), partial(datetime.now, UTC), datetime.datetime.utcnow()\n"
        "text = 'time.time()'\nthen, moment = entry.time, clock.now()\n"
    )
    for name in ("wrong.py", "runners/other.py", "tests/test_it.py"):
        file = tmp_path / "plugins" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = [line.removeprefix("plugins/wrong.py:") for line in house.all_that_ask_the_machine()]
    assert sorted(found) == [
        "1 has time.monotonic: ask tavern_host.clock",
        "4 has time.time: ask tavern_host.clock",
        "5 has time.monotonic: ask tavern_host.clock",
        "5 has time.time_ns: ask tavern_host.clock",
        "6 has datetime.datetime.utcnow: ask tavern_host.clock",
        "6 has datetime.now: ask tavern_host.clock",
    ]


def test_sleeps_and_private_assignments_of_fast_tests_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "ROOT", tmp_path)
    text = (
        "import asyncio, time\n"
        "async def test_it(monkeypatch):\n"
        "    await asyncio.sleep(0)\n"
        "    await asyncio.sleep(0.1)\n"
        "    time.sleep(1)\n"
        "    monkeypatch.setattr(dispatch, 'DEADLINE', 5)\n"
        "    monkeypatch.setattr('tavern_host.x._SLICE', 5)\n"
        "    monkeypatch.setattr(blobs, 'MAX_BLOB', 5)\n"
        "    host._left, self._right = 1, 2\n"
    )
    for name in ("test_it.py", "real/test_it.py", "plugins/acme/nodes.py"):
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = {line.removeprefix("tests/").partition(":")[0::2] for line in house.lane_faults()}
    assert {(file, rest.partition(": ")[0]) for file, rest in found} == {
        *(("test_it.py", fault) for fault in ("4 sleeps", "5 sleeps")),
        ("plugins/acme/nodes.py", "5 sleeps"),
        *(
            (file, fault)
            for file in ("test_it.py", "plugins/acme/nodes.py")
            for fault in ("6 assigns to DEADLINE", "7 assigns to _SLICE", "9 assigns to _left")
        ),
    }
