"""A semaphore whose waiters are served by priority, then first come, first served."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tavern_host.contracts.errors import LimitReached

Ticket = asyncio.Future[bool]
"""Done with True when it holds a slot, with False when it was withdrawn before."""


class PrioritySemaphore:
    """At most `limit()` tickets hold a slot; it is asked each time, so that a changed setting takes effect."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._heap: list[tuple[int, int, Ticket]] = []
        self._sequence = itertools.count()
        self._held = 0

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(not ticket.done() for _, _, ticket in self._heap)

    @property
    def free(self) -> int:
        """How many slots are free."""
        return max(0, self._limit() - self._held)

    def check_room(self, coming: int, most: int) -> None:
        """Raise `LimitReached` where `most` wait, `coming` ones among them that have no ticket yet."""
        waiting = self.waiting + coming
        if waiting and waiting >= most + self.free:
            message = f"the run was not accepted: {waiting - self.free} runs wait already; try again later"
            raise LimitReached(message, retry_after=1)

    def enter(self, priority: int = 0) -> Ticket:
        """Return a ticket, which is done as soon as it holds a slot."""
        ticket: Ticket = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (-priority, next(self._sequence), ticket))
        self._serve()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Release the slot of a ticket, or withdraw one that waits."""
        if ticket.done() and not ticket.cancelled() and ticket.result():
            self._held -= 1
        elif not ticket.done():
            ticket.cancel()
        self._serve()

    @asynccontextmanager
    async def slot(self, priority: int = 0) -> AsyncIterator[None]:
        """Hold a slot within the `async with`."""
        ticket = self.enter(priority)
        try:
            await ticket
            yield
        finally:
            self.leave(ticket)

    def _serve(self) -> None:
        while self._heap and (self._heap[0][2].done() or self._held < max(1, self._limit())):
            _, _, ticket = heapq.heappop(self._heap)
            if not ticket.done():
                self._held += 1
                ticket.set_result(True)
