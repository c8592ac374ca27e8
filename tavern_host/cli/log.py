"""Where the log of `tavern` goes: to standard error, and never the same line twice within a second."""

from __future__ import annotations

import logging

_MOST_KEPT = 1000


class OnceASecond(logging.Filter):
    """Leaves out records of a level that repeat one of less than a second ago; the next one says how many they were."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__()
        self._level = level
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if record.levelno < self._level:
            return True
        text = record.getMessage()
        key = (record.name, text)
        at, count = self._seen.get(key, (float("-inf"), 0))
        if 0 <= record.created - at < 1:
            self._seen[key] = at, count + 1
            return False
        if len(self._seen) >= _MOST_KEPT:
            self._seen.clear()
        self._seen[key] = record.created, 0
        if count:
            record.msg, record.args = f"{text} ({count} more like this)", ()
        return True


def set_up_log(*, verbose: bool) -> None:
    """Write what the host and its libraries log to standard error: all of it with `verbose`, else only what the audit
    log and the libraries warn of."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(OnceASecond())
    tavern_level = logging.INFO if verbose else logging.CRITICAL
    for name, level in (("tavern", tavern_level), ("asyncio", logging.WARNING), ("aiohttp", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
    logging.getLogger("tavern.audit").setLevel(logging.INFO if verbose else logging.WARNING)
