"""Limits how often somebody may be wrong about a password."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tavern_host import clock
from tavern_host.contracts.errors import LimitReached

WINDOW = 300.0
"""Seconds for which a failed login counts."""
PER_NAME, PER_CLIENT = 5, 30
"""How many may fail in that time for one name, and from one address."""
_MOST = 10_000
"""How many names and addresses are remembered; those that count no more are forgotten first, then the oldest."""


class LoginLimits:
    """Counts attempts of the last minutes, by name and by address. An attempt counts from when it begins, so that many
    at once do not pass together."""

    def __init__(self) -> None:
        self._attempts: dict[str, deque[float]] = {}

    def begin(self, name: str, client: str) -> Callable[[], None]:
        """Count an attempt; return what takes it back, and all before it for this name, once it has succeeded.

        An empty name or client is not counted. Raises `LimitReached` with `retry_after` where there were too many.
        """
        now, by_name, by_client = clock.monotonic(), f"name:{name}", f"client:{client}"
        keys = {key: most for key, most, what in ((by_name, PER_NAME, name), (by_client, PER_CLIENT, client)) if what}
        wait = max((self._wait(key, most, now) for key, most in keys.items()), default=0.0)
        if wait > 0:
            message = f"too many logins failed; try again in {wait:.0f} s"
            raise LimitReached(message, retry_after=round(wait, 1))
        for key in keys:
            self._attempts.setdefault(key, deque()).append(now)
        self._forget(now)

        def succeeded() -> None:
            self._attempts.pop(by_name, None)
            if (attempts := self._attempts.get(by_client)) is not None and now in attempts:
                attempts.remove(now)

        return succeeded

    def _wait(self, key: str, most: int, now: float) -> float:
        """Return for how many seconds no more attempt is taken."""
        attempts = self._attempts.get(key, deque())
        while attempts and attempts[0] <= now - WINDOW:
            attempts.popleft()
        return attempts[0] + WINDOW - now if len(attempts) >= most else 0.0

    def _forget(self, now: float) -> None:
        if len(self._attempts) <= _MOST:
            return
        for key in [key for key, times in self._attempts.items() if not times or times[-1] <= now - WINDOW]:
            del self._attempts[key]
        while len(self._attempts) > _MOST:
            del self._attempts[next(iter(self._attempts))]
