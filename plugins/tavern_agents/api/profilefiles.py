"""The files of agents' profiles, and the `agentProfiles` service that reads, checks and writes them."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model


class ProfileFile(Model):
    """A profile as its file has it, and the revision of that, which a change may be made conditional on."""

    id: str
    revision: str
    document: dict[str, JsonValue]


class AgentProfiles(ServiceInterface, name="agentProfiles"):
    """Keeps the profiles of the project's agents, each in a file of the folder `agents`."""

    @reads
    async def get(self, profile_id: str) -> ProfileFile:
        """Return a profile. Raises `NotFound`."""

    @reads
    async def check(self, profile_id: str, document: dict[str, JsonValue]) -> list[str]:
        """Return the mistakes of a document as this agent's profile, each beginning with its place: `$.id: …`."""

    @acts("agentProfiles:write", "Write agents' profiles.")
    async def save(
        self,
        profile_id: str,
        document: dict[str, JsonValue],
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> ProfileFile:
        """Write a profile; an empty `expected_revision` says that there must be none. Raises `InvalidInput` with all
        problems, and `Conflict` where another revision is stored."""


AGENT_PROFILES = ServiceKey(AgentProfiles)
