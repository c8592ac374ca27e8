"""How much a test repeats: little by default, much with `--extended`; and rows of data that one test goes through."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from hypothesis import HealthCheck

from tavern_host.contracts.errors import TavernError

_extended = False

IN_ONE_TEST = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
"""What hypothesis is not to complain of: a slow machine, and examples that share what a test was given."""


def set_extended(extended: bool) -> None:
    """Say, before tests are collected, whether they repeat much."""
    global _extended  # noqa: PLW0603 -- decorators of tests ask, which no fixture reaches
    _extended = extended


def repetitions(small: int, large: int) -> int:
    """Return how often, how many or how large: `large` with `--extended`, otherwise `small`.

    Works in decorators too: `@settings(max_examples=repetitions(20, 400))`.
    """
    return large if _extended else small


class Failures:
    """Rows of data in one test: each row that fails is collected, and all are named at the end.

    with Failures() as failures:
        for name, given, expected in ROWS:
            with failures.row(name):
                assert f(given) == expected
    """

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __enter__(self) -> Failures:
        return self

    @contextmanager
    def row(self, name: object) -> Iterator[None]:
        """Collect the failure of what is done inside, under the name of the row."""
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            places = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" in f.filename]
            place = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
            self._texts.append(f"[{name}]{place} {type(error).__name__}: {error}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._texts and (error is None or isinstance(error, Exception)):
            pytest.fail(f"{len(self._texts)} rows fail:\n" + "\n".join(self._texts), pytrace=False)


async def refused(rows: Sequence[tuple[Awaitable[Any], type[TavernError], str]]) -> None:
    """Await each; it must fail with an error of that kind, whose message has that part."""
    assert rows
    with Failures() as failures:
        for number, (act, kind, part) in enumerate(rows):
            with failures.row(f"{number}: {part}"):
                with pytest.raises(TavernError) as caught:
                    await act
                assert (caught.value.info.code, part in caught.value.message) == (kind.code, True), caught.value
