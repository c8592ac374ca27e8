"""What people do in a panel: they run its workflows and talk to its agents, with the inputs that it shows.

A run belongs to the panel and the person that began it: nobody else reaches it through a panel.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.agents import AGENT_RUNTIME, AgentRequest, AgentRun, AgentStatus
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.names import did_you_mean
from tavern_panels.api.panels import PanelElement, PanelKind, PanelMessage, PanelRun
from tavern_panels.files import StoredPanel
from tavern_panels.questions import question_of
from tavern_panels.shown import output_keys, shown_keys
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, WorkflowProblem

REPLY = "reply"
"""The output of a run of an agent."""

_ENDS: dict[AgentStatus, Any] = {
    AgentStatus.REPLY: "complete",
    AgentStatus.LIMIT: "error",
    AgentStatus.ERROR: "error",
    AgentStatus.INTERRUPTED: "interrupted",
}
_MESSAGES = 200
"""How many of the latest messages of a conversation are shown."""


class PanelInUse:
    """A panel as one person uses it."""

    def __init__(self, panel_id: str, stored: StoredPanel, call: CallContext, context: PluginContext) -> None:
        self._id = panel_id
        self._panel = stored.panel
        self._call = call
        self._services = context.services
        self._context = context

    def element(self, element_id: str, kind: PanelKind) -> PanelElement:
        """Return an element of a kind. Raises `NotFound`."""
        of_kind = {one.id: one for one in self._panel.elements if one.kind == kind}
        if element_id not in of_kind:
            hint = did_you_mean(element_id, of_kind)
            raise NotFound(f"the panel {self._id!r} has no {kind} {element_id!r:.100}{hint}")
        return of_kind[element_id]

    async def start(self, element_id: str, inputs: dict[str, JsonValue]) -> str:
        """Run a workflow with values for the inputs that are shown; return the id of the run. Raises `InvalidInput`
        whose `problems` name the inputs by their `slot`, and `NotFound`."""
        element = self.element(element_id, "workflow")
        workflow = (await self._services.get(WORKFLOW_MANAGER).get(element.target)).workflow
        shown = shown_keys(element, workflow)
        if unknown := [key for key in inputs if key not in shown]:
            problems = [
                WorkflowProblem(
                    path=f"$.inputs.{key[:100]}",
                    message=f"the element {element_id!r} shows no input {key!r:.100}{did_you_mean(key, shown)}",
                    slot=key[:100],
                )
                for key in unknown[:20]
            ]
            raise InvalidInput(problems[0].message, problems=[one.to_json() for one in problems])
        preset = {
            key: one.value
            for key, one in element.inputs.items()
            if one.value is not None and key in workflow.interface_inputs
        }
        values = preset | {key: value for key, value in inputs.items() if value is not None}
        about: dict[str, JsonValue] = {"panel": self._id, "element": element_id}
        asked = RunRequest(workflow_id=element.target, inputs=values, metadata=about)
        return await self._services.get(EXECUTION_ENGINE).submit(asked, call=self._call)

    async def run(self, run_id: str) -> PanelRun:
        """Return a run of this person in this panel as it stands. Raises `NotFound`."""
        if run_id.startswith("agent_"):
            found = self._of_agent(*await self._agent_run(run_id))
            return await self._with_question(found) if found.waits else found
        run, element = await self._run(run_id)
        workflow = (await self._services.get(WORKFLOW_MANAGER).get(element.target)).workflow
        status: Any = run.status.value
        outputs = output_keys(element, workflow)
        found = PanelRun(
            id=run.id,
            element=element.id,
            status=status,
            inputs={key: run.inputs[key] for key in shown_keys(element, workflow) if key in run.inputs},
            outputs={key: run.outputs[key] for key in outputs if key in run.outputs},
            error=None if run.error is None else run.error.message,
            submitted_at=run.submitted_at,
            finished_at=run.finished_at,
        )
        return await self._with_question(found) if status == "running" else found

    async def _with_question(self, run: PanelRun) -> PanelRun:
        return run.model_copy(update={"question": await question_of(run.id, self._call, self._context)})

    async def output(self, run_id: str, key: str) -> Blob:
        """Return an output that the element shows, as a Blob. Raises `NotFound`."""
        run, element = await self._run(run_id)
        workflow = (await self._services.get(WORKFLOW_MANAGER).get(element.target)).workflow
        if key not in output_keys(element, workflow):
            raise NotFound(f"the element {element.id!r} shows no output {key!r:.100}")
        return await self._services.get(EXECUTION_ENGINE).output(run.id, key, call=self._call)

    async def stop(self, run_id: str) -> PanelRun:
        """Stop a run of this person. Raises `NotFound`."""
        if run_id.startswith("agent_"):
            run, _ = await self._agent_run(run_id)
            await self._services.get(AGENT_RUNTIME).interrupt(run.id, call=self._call)
        else:
            found, _ = await self._run(run_id)
            await self._services.get(EXECUTION_ENGINE).interrupt(found.id, call=self._call)
        return await self.run(run_id)

    async def shown_outputs(self, element_id: str) -> list[str]:
        """Return the keys of what is shown of an element's runs while they run."""
        element = next((one for one in self._panel.elements if one.id == element_id), None)
        if element is None or element.kind != "workflow":
            return [REPLY]
        return output_keys(element, (await self._services.get(WORKFLOW_MANAGER).get(element.target)).workflow)

    # --- agents -------------------------------------------------------------------------------------------

    async def say(self, element_id: str, message: str, number: int) -> str:
        """Say something to an agent in this person's conversation of a number; return the id of the run."""
        element = self.element(element_id, "agent")
        asked = AgentRequest(
            profile_id=element.target, message=message, conversation_id=self._conversation(element_id, number)
        )
        return (await self._services.get(AGENT_RUNTIME).start(asked, call=self._call)).id

    async def messages(self, element_id: str, number: int) -> list[PanelMessage]:
        """Return the messages of this person's conversation of a number.

        Of an agent's work its last words are among it, without its calls and what it observed.
        """
        self.element(element_id, "agent")
        history = self._services.get(CHAT_HISTORY)
        found: list[PanelMessage] = []
        run: str | None = None
        for one in await history.load(self._conversation(element_id, number), last=_MESSAGES):
            message = one.message
            if message.role == "assistant":
                run = one.run_id
            is_observed = message.role == "user" and run is not None and one.run_id == run
            if message.role in ("user", "assistant") and message.content and not is_observed:
                role: Any = message.role
                if found and role == found[-1].role == "assistant" and found[-1].run == one.run_id:
                    del found[-1]
                found.append(PanelMessage(role=role, text=message.content, at=one.created_at, run=one.run_id))
        return found

    def _conversation(self, element_id: str, number: int) -> str:
        """Return the id of a conversation, which nobody else's can be."""
        return f"{self._conversations(element_id)}.{number}"

    def _conversations(self, element_id: str) -> str:
        who = f"{self._call.principal.kind}:{self._call.principal.id}"
        return f"panel.{self._id}.{element_id}.{sha256(who.encode()).hexdigest()[:16]}"

    async def _run(self, run_id: str) -> tuple[Run, PanelElement]:
        run = await self._services.get(EXECUTION_ENGINE).show(run_id)
        elements = {one.id: one for one in self._panel.elements if one.kind == "workflow"}
        element = elements.get(str(run.metadata.get("element")))
        who, me = run.principal, self._call.principal
        is_mine = who is not None and (who.kind, who.id) == (me.kind, me.id)
        if element is None or run.metadata.get("panel") != self._id or not is_mine:
            raise NotFound(f"you have no run {run_id!r:.100} in the panel {self._id!r}")
        return run, element

    async def _agent_run(self, run_id: str) -> tuple[AgentRun, str]:
        run = await self._services.get(AGENT_RUNTIME).get_run(run_id)
        for element in self._panel.elements:
            if element.kind == "agent" and run.conversation_id.startswith(f"{self._conversations(element.id)}."):
                return run, element.id
        raise NotFound(f"you have no run {run_id!r:.100} in the panel {self._id!r}")

    def _of_agent(self, run: AgentRun, element_id: str) -> PanelRun:
        status = _ENDS.get(run.status, "running")
        return PanelRun(
            id=run.id,
            element=element_id,
            status=status,
            outputs={REPLY: run.text} if run.text else {},
            error=run.reason if status == "error" else None,
            waits=run.status is AgentStatus.WAITING,
            submitted_at=run.started_at,
            finished_at=run.finished_at,
        )
