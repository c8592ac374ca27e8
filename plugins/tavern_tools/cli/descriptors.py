"""The commands that the plugin offers. Their code is imported when one is called."""

from __future__ import annotations

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_tools.api.toolcalls import TaskStatus

_FILTERS = (
    CommandParameter(name="--tag", help="Only those with this tag."),
    CommandParameter(name="--namespace", help="Only those whose ids begin with this word."),
    CommandParameter(name="--kind", help="Only those of this kind: workflow, node, service or script."),
    CommandParameter(name="--plugin", help="Only those of this plugin."),
    CommandParameter(name="--text", help="Only those with this text in id, name or description."),
)
"""What a list of tools can be limited to."""
_ID = CommandParameter(name="id", help="The tool's id, or ID@RANGE (kb:Query@^1.2).", required=True)
_PROTOCOL = CommandParameter(name="--protocol", help="Only this action protocol.", multiple=True)
_CALL = (
    _ID,
    CommandParameter(
        name="--arg", help="An argument as NAME=VALUE; the value is converted to the parameter's type.", multiple=True
    ),
    CommandParameter(name="--arguments", help="All arguments as a JSON object; --arg comes on top."),
)
_DOCS = (
    CommandParameter(name="--tool", help="Only this tool; may be repeated.", multiple=True),
    CommandParameter(name="--native", type="flag", help="As an LLM's native function calling has them."),
    _PROTOCOL,
)
_PATH = CommandParameter(name="--path", type="path", help="A file or folder.", multiple=True)
_FILE = CommandParameter(name="file", help="The file, or - for stdin.", type="path", required=True)

_TASK = CommandParameter(name="task", required=True, help="The id of a task, or the beginning of it.")
_COMMENT = CommandParameter(name="--comment", help="What to say about the decision.")
_LIMIT = CommandParameter(name="--limit", type="integer", default=20, help="At most so many.")
_TOOL = CommandParameter(name="--tool", help="Those of this tool; * and ? stand for any characters.")
_OF = (
    CommandParameter(
        name="--status",
        multiple=True,
        help=f"Those of this status: {', '.join(status.value for status in TaskStatus)}.",
    ),
    _TOOL,
    CommandParameter(name="--principal", help="Those of this caller, such as agent:writer."),
    _LIMIT,
)
_WAIT = CommandParameter(name="--wait", type="number", default=0, help="Wait so many seconds for its end.")
_EDITED = (
    _TASK,
    CommandParameter(
        name="--arg",
        multiple=True,
        help="Another value for an argument as NAME=VALUE; it is converted to the parameter's type.",
    ),
    CommandParameter(name="--arguments", help="All arguments in place of its own, as a JSON object."),
    _COMMENT,
)
_ANSWER = (
    _TASK,
    CommandParameter(
        name="answer",
        help="The answer: a text, a choice or its number (several with commas), a form as a JSON object.",
    ),
    CommandParameter(name="--field", multiple=True, help="A field of a form as NAME=VALUE."),
    CommandParameter(name="--file", type="path", help="A file of this computer, which is copied into the project."),
    _COMMENT,
)

_SHOW = "Show one tool: what it does, its parameters, and where it comes from."
_DOCUMENT = "Show the documentation of tools that a language model gets, and how it asks for calls."
_PARSE = "Show the tool calls that action text asks for, without making them."
_SHOW_TASK = "Show a task: what was asked for, how it stands, and what it gave."
_APPROVE = "Let a call be made that waits for a decision, as it is or with other arguments."
_WAITING = "List the calls that wait for a decision, and the questions of agents, newest first."
_ANSWER_HELP = "Answer a question of an agent; without an answer, the terminal asks for it."
_COMMANDS: tuple[tuple[str, str, str, tuple[CommandParameter, ...]], ...] = (
    ("tools list", "commands:list_tools", "List the tools.", _FILTERS),
    ("tools show", "commands:show_tool", _SHOW, (_ID,)),
    ("tools call", "commands:call_tool", "Call a tool, and wait for it.", _CALL),
    ("tools docs", "commands:document_tools", _DOCUMENT, _DOCS),
    ("tools check", "commands:check_tools", "Check tool files: by default those of the project.", (_PATH,)),
    ("parse", "commands:parse", _PARSE, (_FILE, _PROTOCOL)),
    ("tasks list", "task_commands:list_tasks", "List tasks of tools, newest first.", _OF),
    ("tasks show", "task_commands:show_task", _SHOW_TASK, (_TASK, _WAIT)),
    ("tasks cancel", "task_commands:cancel_task", "Cancel a task.", (_TASK,)),
    ("approvals list", "task_commands:list_approvals", _WAITING, (_TOOL, _LIMIT)),
    ("approvals approve", "task_commands:approve", _APPROVE, _EDITED),
    ("approvals answer", "task_commands:answer", _ANSWER_HELP, _ANSWER),
    ("approvals refuse", "task_commands:refuse", "Refuse a call that waits for a decision.", (_TASK, _COMMENT)),
)

_GROUPS = {
    "tools": CommandGroup(help="See, call, document and check tools.", section="build"),
    "parse": CommandGroup(section="build"),
    "tasks": CommandGroup(help="See calls of tools that take their time, and cancel them.", section="run"),
    "approvals": CommandGroup(help="Decide about calls that wait for a person.", section="run"),
}
_EXAMPLES = """
tavern tools call system:get_current_time
tavern tools call node:core:Trim --arg text=" ale "
tavern tools show system:get_current_time
tavern tools list --text time
tavern parse answer.txt
tavern tasks cancel task_4f1c
tavern tasks show task_4f1c --wait 60
tavern approvals answer task_4f1c yes
tavern approvals approve task_4f1c
tavern approvals refuse task_4f1c --comment "not this file"
"""


def commands() -> list[CommandInfo]:
    """Return the commands about tools and action text, tasks and approvals."""
    return [
        CommandInfo(
            name=name,
            help=help,
            examples=examples_of(name, _EXAMPLES),
            handler=f"tavern_tools.cli.{handler}",
            group=_GROUPS.get(name.split()[0]),
            parameters=list(parameters),
        )
        for name, handler, help, parameters in _COMMANDS
    ]
