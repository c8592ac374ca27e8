"""The log of a command does not repeat a line within a second."""

from __future__ import annotations

import logging

from tavern_host.cli.log import OnceASecond


def test_a_line_is_repeated_once_a_second_with_how_often_it_was_left_out() -> None:
    log, written = OnceASecond(), []
    for at, text in ((0.0, "full"), (0.3, "full"), (0.5, "other"), (0.9, "full"), (1.1, "full"), (1.2, "full")):
        record = logging.makeLogRecord({"name": "tavern", "msg": text, "created": at, "levelno": logging.ERROR})
        if log.filter(record):
            written.append(record.getMessage())
    assert written == ["full", "other", "full (2 more like this)"]
