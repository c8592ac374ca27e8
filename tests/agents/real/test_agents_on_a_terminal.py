"""A person at a terminal talks to an agent, and decides about its calls."""

from __future__ import annotations

from helpers.screen import on_screen
from helpers.tavern_project import Tavern, action

from tests.agents.agent_bench import tool


def test_a_person_talks_to_an_agent_and_approves(tavern: Tavern) -> None:
    tavern.write("tools/shout.tool.json", tool("shout", requiresApproval=True))
    tavern.replies(
        ({"last_contains": "ApprovalRefused"}, "Then not."),
        ({"last_contains": "WINE"}, "Wine it is."),
        ({"last_contains": "please"}, action("shout", text="ale")),
        ({"contains": "please"}, "We talked before."),
    )
    typed = 'Shout please\nn\nOnce more, please\ne\n{"text": "wine"}\nBye\n\n'
    code, screen, _ = on_screen("--project", tavern.root, "agent", "run", "keeper", typed=typed, columns=200)
    assert code == 0, screen.text
    for part in (
        *('keeper wants to call shout {"text": "ale"}', "Then not.", "Wine it is.", "We talked before."),
        "To continue this conversation: tavern agent run keeper --conversation agent_",
    ):
        assert part in screen.text, screen.text
