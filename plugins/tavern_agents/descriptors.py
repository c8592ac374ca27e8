"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "/api/agents", "list_agents", "The project's agents."),
    ("GET", "/api/agents/schema", "get_schema", "The JSON Schema of profiles."),
    ("GET", "/api/agents-check", "check_agents", "What is wrong with the project's agents."),
    ("GET", "/api/agents/{id}", "get_profile", "Read an agent's profile."),
    ("PUT", "/api/agents/{id}", "save_profile", "Save an agent's profile."),
    ("DELETE", "/api/agents/{id}", "delete_profile", "Delete an agent's profile."),
    ("POST", "/api/agents/{id}/run", "run_agent", "Give an agent a message and wait for its reply."),
    ("POST", "/api/agents/{id}/runs", "start_run", "Give an agent a message; answers at once."),
    ("GET", "/api/agents/{id}/memory", "get_memory", "What an agent remembers in `?conversationId=&branch=&leaf=`."),
    ("POST", "/api/agents/{id}/memory", "change_memory", "Change what an agent remembers."),
    ("GET", "/api/agent-runs", "list_runs", "Runs of agents, newest first."),
    ("GET", "/api/agent-runs/{run}", "get_run", "A run of an agent as it stands."),
    ("GET", "/api/agent-runs/{run}/trace", "get_trace", "The steps of a run, those `after` a number."),
    ("GET", "/api/agent-runs/{run}/recording", "get_recording", "A run as it can be played again."),
    ("POST", "/api/agent-runs/{run}/replay", "replay_run", "Play a run again; answers with the first difference."),
    ("POST", "/api/agent-runs/{run}/messages", "say", "Say something to an agent at work."),
    ("POST", "/api/agent-runs/{run}/interrupt", "interrupt_run", "Stop a run."),
    ("POST", "/api/agent-runs/{run}/pause", "pause_run", "Let a run stop before its next deliberation."),
    ("POST", "/api/agent-runs/{run}/resume", "resume_run", "Let a run resume."),
)


_RUN = {"answer": "api.agents:AgentRun"}
_TYPES: dict[str, dict[str, Any]] = {
    "list_agents": {"answer": "api.agents:AgentSummary[]"},
    "get_profile": {"answer": "api.agents:AgentProfile"},
    "save_profile": {"body": "api.agents:AgentProfile", "answer": "api.agents:AgentProfile", "creates": True},
    "delete_profile": {"answer": "host_api:Done"},
    "check_agents": {"answer": "api.agents:AgentProblem[]"},
    "run_agent": {"body": "RunBody", "answer": "api.agents:AgentReply"},
    "start_run": {"body": "RunBody", **_RUN, "status": 202},
    "get_memory": {"query": "api.answers:MemoryQuery", "answer": "api.memory:AgentMemory"},
    "change_memory": {"body": "MemoryBody", "answer": "api.memory:AgentMemory"},
    "list_runs": {"query": "api.answers:AgentRunQuery", "answer": "api.agents:AgentRun[]"},
    "get_trace": {"query": "api.answers:AfterQuery", "answer": "api.agents:AgentTrace[]"},
    "get_recording": {"answer": "api.recordings:AgentRecording"},
    "replay_run": {"body": "api.recordings:ReplayOptions", "answer": "api.recordings:AgentReplay"},
    "say": {"body": "SayBody", **_RUN, "status": 202},
    **dict.fromkeys(("get_run", "interrupt_run", "pause_run", "resume_run"), _RUN),
}
"""What goes in and out of the routes, by function."""

_MODULES = dict.fromkeys(("get_profile", "save_profile", "delete_profile"), "profile_web")
"""The modules of those functions that are not in `web`."""


def routes() -> list[RouteInfo]:
    """Return the routes of agents."""
    return [
        RouteInfo.of_module(f"tavern_agents.{_MODULES.get(route[2], 'web')}", *route, _TYPES.get(route[2], {}))
        for route in _ROUTES
    ]


_PROFILE = CommandParameter(name="profile", help="The agent's id.", required=True)
_RUN_ID = CommandParameter(name="run", help="The id of a run.", required=True)
_MEMORY = (
    _PROFILE,
    CommandParameter(name="conversation", help="The conversation's id.", required=True),
    CommandParameter(name="--branch", help="A branch of it; the active one if left out."),
    CommandParameter(name="--leaf", help="What it remembered at this message."),
    CommandParameter(name="--state", help="JSON: the keys of its private state that change; null removes."),
    CommandParameter(name="--goals", help="JSON: a list of goals that are new or change, by id."),
    CommandParameter(name="--note", help="A line for its working log."),
)
_GROUP = CommandGroup(help="Talk to agents; see what they did, remember and have wrong.", section="run")
_TALK = (
    _PROFILE,
    CommandParameter(name="--message", help="The message; without it, lines from the terminal or stdin."),
    CommandParameter(name="--image", help="A picture that belongs to the message.", type="path", multiple=True),
    CommandParameter(name="--conversation", help="The id of a conversation to continue, or to begin."),
    CommandParameter(name="--branch", help="A branch of that conversation; the active one if left out."),
    CommandParameter(name="--max-steps", help="How often it may deliberate.", type="integer"),
)
_OF = (
    CommandParameter(name="--profile", help="Only those of this agent."),
    CommandParameter(name="--limit", type="integer", default=20, help="At most so many."),
)
_REPLAYED = (
    CommandParameter(name="--model", help="Let this model answer; calls get the recorded results."),
    CommandParameter(name="--profile", help="Another agent than the recorded one."),
    CommandParameter(name="--tools", default="read-only", help="Which calls are really made: read-only, none, or all."),
)
_REPLAY = (
    CommandParameter(name="run", help="The id of a run, or a recording's file (*.json).", required=True),
    *_REPLAYED,
    CommandParameter(name="--export", type="path", help="Write the recording to this file instead."),
)
_TEST = (CommandParameter(name="files", help="Recordings.", type="path", multiple=True), *_REPLAYED)

_COMMANDS: tuple[tuple[str, str, str, tuple[CommandParameter, ...]], ...] = (
    ("list", "commands:list_agents", "List the project's agents.", ()),
    (
        "check",
        "commands:check_agents",
        "Check the project's agents: files, tools, workflows.",
        (CommandParameter(name="--profile", help="Only this agent."),),
    ),
    ("memory", "commands:show_memory", "Show what an agent remembers in a conversation, or change it.", _MEMORY),
    ("schema", "commands:show_schema", "Print the JSON Schema of profiles.", ()),
    (
        "run",
        "chat:run_agent",
        "Talk to an agent: give it a message and watch it work, or converse line by line.",
        _TALK,
    ),
    ("runs", "commands:list_runs", "List runs of agents.", _OF),
    ("trace", "commands:show_trace", "Show what a run did.", (_RUN_ID,)),
    ("resume", "chat:resume_run", "Resume a run that was interrupted, failed, or ended at a limit.", (_RUN_ID,)),
    (
        "replay",
        "replay.commands:replay",
        "Play a run again and show the first difference: the recorded answers with today's tools and prompts, "
        "or another model with the recorded results.",
        _REPLAY,
    ),
    (
        "test",
        "replay.commands:test",
        "Play recordings as tests; by default all in the project's folder recordings/.",
        _TEST,
    ),
    ("interrupt", "commands:interrupt_run", "Stop a run.", (_RUN_ID,)),
)
_EXAMPLES = """
tavern agent run assistant --message "What can you do?"
tavern agent run assistant --conversation history_4f1c
tavern agent check --profile assistant
tavern agent interrupt run_4f1c
tavern agent memory assistant history_4f1c
tavern agent replay run_4f1c --export recordings/greeting.json
tavern agent replay recordings/greeting.json --model small
tavern agent resume run_4f1c
tavern agent test recordings/greeting.json
tavern agent trace run_4f1c
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern agent …`."""
    return [
        CommandInfo(
            name=f"agent {name}",
            help=help,
            examples=examples_of(f"agent {name}", _EXAMPLES),
            handler=f"tavern_agents.{handler}",
            group=_GROUP,
            parameters=list(parameters),
        )
        for name, handler, help, parameters in _COMMANDS
    ]
