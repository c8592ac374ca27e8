"""How fast a child may call its host, tell it something, and print: what comes faster waits, so that a flood costs who
makes it."""

from __future__ import annotations

from typing import Final

from tavern_host import clock
from tavern_isolation import frames

CALL: Final = 1 / 2_000
"""Seconds of a child's pace that a call takes, or the end of one, so that there are 2,000 in a second for long."""
NOTICE: Final = 1 / 5_000
"""That of a notice, such as a line of the log or an event, and of an answer that nobody waits for."""
CREDIT: Final = 1 / 20_000
"""That of saying that items of a stream were read."""
LINE: Final = 1 / 1_000
"""That of a line of output."""
ASKED_FOR_BY_NOBODY: Final = {frames.CALL: CALL, frames.CANCEL: CALL, frames.NOTICE: NOTICE, frames.CREDIT: CREDIT}
"""What the kinds of frames take that a child sends unasked; answers are as many as there are questions."""
BYTE: Final = 1 / 20_000_000
"""That of each byte of these."""
LATE: Final = 5.0
"""By how much longer a wait gets than the loop was late when it ended, so that a child keeps it busy for a part of the
time only."""
LONGEST: Final = 0.5
"""Seconds that a wait gets longer by at most."""
_SHORTEST: Final = 0.005
"""Seconds that a wait takes at least, so that there are few of them."""
AT_ONCE: Final = 0.01
"""How many seconds' worth of calls and notices are taken at once."""


class Pace:
    """A bucket that holds some seconds: what is used comes back as time passes."""

    def __init__(self, holds: float = 1.0) -> None:
        self._holds = holds
        self._until = 0.0

    def take(self, seconds: float) -> float:
        """Take seconds out; return in how many seconds there is something again, 0 for at once."""
        now = clock.monotonic()
        self._until = max(self._until, now - self._holds) + seconds
        return max(self._until - now, _SHORTEST) if self._until > now else 0.0
