"""A node that throws dice."""

from __future__ import annotations

import random
from typing import Annotated

from tavern_host import Slot, node


@node(category="number", display_name="Throw dice")
def throw(
    sides: Annotated[int, Slot("How many sides a die has.", min=2, max=100)] = 6,
    seed: Annotated[int, Slot("The same seed gives the same throw.")] = 1,
) -> Annotated[int, Slot("What was thrown.", key="number")]:
    """Throws one die."""
    return random.Random(seed).randint(1, sides)
