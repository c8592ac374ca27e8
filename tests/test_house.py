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
