"""The commands that the plugin offers. Their code is imported when one is called."""

from __future__ import annotations

from tavern_host import CommandGroup, CommandInfo, CommandParameter
from tavern_host.contracts.commands import examples_of

_NAME = CommandParameter(name="name", help="The model's name here.", required=True)
_TESTED = CommandParameter(name="name", help="The model's name; the default model if left out.")
_ADD = (
    _NAME,
    CommandParameter(name="--url", help="The server's address, such as https://api.example.com/v1."),
    CommandParameter(name="--key", help="The API key, as others here may see it; '-' reads standard input."),
    CommandParameter(name="--key-env", help="The environment variable that holds the API key."),
    CommandParameter(name="--model", help="The server's name for the model; asked for where it has several."),
    CommandParameter(name="--adapter", help="How the model is reached.", default="openai"),
    CommandParameter(name="--default", help="Make it the default model.", type="flag"),
    CommandParameter(name="--replace", help="Replace a model of this name.", type="flag"),
)
_SET_UP = "Set up a language model: ask its server what it has, try it, and save it for this project."
_COMMANDS: tuple[tuple[str, str, str, tuple[CommandParameter, ...]], ...] = (
    ("list", "list_models", "List the language models.", ()),
    ("add", "add_model", _SET_UP, _ADD),
    ("test", "test_model", "Send a short request to a model and show its answer.", (_TESTED,)),
    ("remove", "remove_model", "Forget a language model, or an alias, that was set up here.", (_NAME,)),
    ("default", "set_default", "Choose the model that is asked where a request names none.", (_NAME,)),
)
_EXAMPLES = """
tavern models add local --url http://127.0.0.1:8080/v1
tavern models add large --url https://api.example.com/v1 --key-env API_KEY --model large-1 --default
tavern models default large
tavern models remove local
tavern models test large
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern models …`."""
    handlers = "tavern_llm.commands"
    return [
        CommandInfo(
            name=f"models {name}",
            help=help,
            examples=examples_of(f"models {name}", _EXAMPLES),
            handler=f"{handlers}:{handler}",
            group=CommandGroup(help="Set up language models, and try them.", section="build"),
            parameters=list(parameters),
        )
        for name, handler, help, parameters in _COMMANDS
    ]
