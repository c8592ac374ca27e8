"""Nodes that make and change text. Searching here is plain; what searches with patterns is in `textpatterns`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from tavern_host import Config, InvalidInput, NodeDefinition, Slot, node
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_nodes.paths import Missing, read_path, select
from tavern_nodes.templates import fill
from tavern_nodes.values import (
    MAX_ITEMS,
    MAX_TEXT,
    as_text,
    bounded,
    check_size,
    choose_from,
    join,
    kind_of,
    look_up,
    shorten,
    unescape,
)

TextOut = Annotated[str, Slot("The text.", key="text")]
Separator = Annotated[str, Slot(r"What stands between the parts; \n is a new line, \t a tab.")]


class FoundText(TypedDict):
    """The outputs of `TextContains`."""

    found: Annotated[bool, Slot("Whether the text is there.")]
    position: Annotated[int, Slot("Where it is the first time, counted from 0; -1 where it is not.")]
    count: Annotated[int, Slot("How many times it is there.")]


TEXT_MERGE = NodeDefinition(
    type="TextMerge",
    namespace="core",
    category="实用工具",
    display_name="📝文本合并",
    description="Joins texts, in the order of their connections, with a separator between them.",
    inputs={
        "separator": SlotDefinition(
            data_flow_type=DataFlowType.STRING,
            display_name="分隔符",
            description=r"What stands between the texts; \n is a new line, \t a tab, \\ a backslash.",
            required=False,
            config={"default": r"\n", "multiline": False, "placeholder": "输入分隔符", "label": "分隔符"},
        ),
        "text_inputs": SlotDefinition(
            data_flow_type=DataFlowType.STRING,
            display_name="文本输入",
            description="The texts to join.",
            required=True,
            multi=True,
            match_categories=("UiBlock",),
        ),
    },
    outputs={
        "merged_text": SlotDefinition(
            data_flow_type=DataFlowType.STRING, display_name="合并文本", description="The joined text."
        )
    },
)


@node(definition=TEXT_MERGE)
def text_merge(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Join `text_inputs`, a list or one text. What is not text is written as JSON. Raises `InvalidInput`."""
    separator = inputs.get("separator", r"\n")
    if not isinstance(separator, str):
        raise InvalidInput(f"TextMerge: separator must be text, not {kind_of(separator)}")
    value = inputs.get("text_inputs")
    parts = value if isinstance(value, list) else [value]
    check_size(parts, "TextMerge: text_inputs")
    texts = [as_text(part, f"TextMerge: text_inputs[{index}]") for index, part in enumerate(parts)]
    return {"merged_text": join(unescape(separator), texts, "TextMerge")}


@node(category="Text", display_name="Text")
def text(text: Annotated[str, Slot("The text.", multiline=True)] = "") -> TextOut:
    """A text to use in several places."""
    return text


@node(category="Text", display_name="Upper case")
def upper_case(text: Annotated[str, Slot("The text to change.", multiline=True)]) -> TextOut:
    """Write all letters as capitals."""
    return text.upper()


@node(category="Text", display_name="Lower case")
def lower_case(text: Annotated[str, Slot("The text to change.", multiline=True)]) -> TextOut:
    """Write all letters small."""
    return text.lower()


@node(category="Text", display_name="Trim")
def trim(
    text: Annotated[str, Slot("The text to change.", multiline=True)],
    side: Annotated[Literal["both", "start", "end"], Config("Where to remove it.")] = "both",
) -> TextOut:
    """Remove white space, new lines too, from the start and the end."""
    strip = {"both": str.strip, "start": str.lstrip, "end": str.rstrip}
    return choose_from(strip, side, "Trim: side")(text)


@node(category="Text", display_name="Replace text")
def replace_text(
    text: Annotated[str, Slot("The text to change.", multiline=True)],
    search: Annotated[str, Slot("What to look for, letter by letter.")],
    replacement: Annotated[str, Slot("What to put in its place.")] = "",
) -> TextOut:
    """Replace every occurrence of a text by another."""
    if not search:
        raise InvalidInput("ReplaceText: search must not be empty")
    growth = text.count(search) * (len(replacement) - len(search))
    if growth > 0:
        bounded(len(text) + growth, MAX_TEXT, "ReplaceText", "characters")
    return text.replace(search, replacement)


@node(category="Text", display_name="Split text")
def split_text(
    text: Annotated[str, Slot("The text to split.", multiline=True)],
    separator: Separator = r"\n",
    skip_empty: Annotated[bool, Slot("Leave out parts that are empty or white space.")] = False,
) -> Annotated[list[str], Slot("The parts.", key="parts")]:
    """Cut a text into a list at every separator."""
    at = unescape(separator)
    if not at:
        raise InvalidInput("SplitText: separator must not be empty")
    bounded(text.count(at) + 1, MAX_ITEMS, "SplitText", "parts")
    return [part for part in text.split(at) if part.strip() or not skip_empty]


@node(category="Text", display_name="Join text")
def join_text(
    parts: Annotated[list[Any], Slot("The list; what is not text is written as JSON.")],
    separator: Separator = r"\n",
) -> TextOut:
    """Make one text of a list."""
    check_size(parts, "JoinText: the list")
    texts = [as_text(part, f"JoinText: item {index}") for index, part in enumerate(parts)]
    return join(unescape(separator), texts, "JoinText")


@node(category="Text", display_name="Format text")
def format_text(
    template: Annotated[str, Slot("The text with its {placeholders}.", multiline=True)],
    values: Annotated[dict[str, Any], Slot("An object with a value for each placeholder.")],
) -> TextOut:
    """Fill in the placeholders of a text.

    `{name}` and `{user.name}` are replaced by that part of the object; `{{name}}` stays as `{name}`; all
    other braces are left alone, so JSON in a template needs no care.
    """
    return fill(
        template, lambda path: as_text(look_up(values, path, "FormatText"), f"FormatText: {path}"), "FormatText"
    )


@node(category="Text", display_name="Text length")
def text_length(
    text: Annotated[str, Slot("The text to measure.", multiline=True)],
) -> Annotated[int, Slot("The number of characters.", key="length")]:
    """Count the characters of a text."""
    return len(text)


@node(category="Text", display_name="Part of text")
def substring(
    text: Annotated[str, Slot("The text.", multiline=True)],
    start: Annotated[int, Slot("The position of the first character; a negative one counts from the end.")] = 0,
    end: Annotated[int | None, Slot("The first position that is not taken; empty means up to the end.")] = None,
) -> TextOut:
    """Take a part of a text; positions outside of the text are not an error."""
    return text[start:end]


@node(category="Text", display_name="Shorten text")
def truncate_text(
    text: Annotated[str, Slot("The text to shorten.", multiline=True)],
    length: Annotated[int, Slot("The most characters that the result may have.", min=0)] = 200,
    ellipsis: Annotated[str, Slot("What stands in for what was cut off; it counts as well.")] = "…",
) -> TextOut:
    """Cut off the end of a text that is too long."""
    if length < 0:
        raise InvalidInput(f"TruncateText: length must not be negative, it is {length}")
    if len(text) <= length:
        return text
    return text[: max(0, length - len(ellipsis))] + ellipsis[:length]


@node(category="Text", display_name="Search text")
def text_contains(
    text: Annotated[str, Slot("The text to look in.", multiline=True)],
    search: Annotated[str, Slot("What to look for, letter by letter.")],
    where: Annotated[Literal["anywhere", "start", "end", "whole"], Config("Where it must be.")] = "anywhere",
    ignore_case: Annotated[bool, Config("Take capital and small letters as the same.")] = False,
) -> FoundText:
    """Say whether, where and how often a text is in another."""
    choose_from(dict.fromkeys(("anywhere", "start", "end", "whole")), where, "TextContains: where")
    if not search:
        raise InvalidInput("TextContains: search must not be empty")
    if ignore_case:
        text, search = text.casefold(), search.casefold()
    if where == "anywhere":
        position, count = text.find(search), text.count(search)
    else:
        holds = {"start": text.startswith(search), "end": text.endswith(search), "whole": text == search}[where]
        position, count = (len(text) - len(search) if where == "end" else 0, 1) if holds else (-1, 0)
    return {"found": count > 0, "position": position, "count": count}


@node(category="Text", display_name="Pad text")
def pad_text(
    text: Annotated[str, Slot("The text.", multiline=True)],
    length: Annotated[int, Slot("How many characters it gets at least.", min=0, max=MAX_TEXT)],
    filler: Annotated[str, Slot("What is added, again and again.")] = " ",
    side: Annotated[Literal["start", "end", "both"], Config("Where it is added.")] = "end",
) -> TextOut:
    """Make a text longer, up to a length."""
    choose_from(dict.fromkeys(("start", "end", "both")), side, "PadText: side")
    if not filler:
        raise InvalidInput("PadText: filler must not be empty")
    bounded(length, MAX_TEXT, "PadText", "characters")
    missing = max(0, length - len(text))
    before = {"start": missing, "end": 0, "both": missing // 2}[side]
    return _filling(filler, before) + text + _filling(filler, missing - before)


def _filling(filler: str, length: int) -> str:
    return (filler * (length // len(filler) + 1))[:length]


@node(category="Text", display_name="Repeat text")
def repeat_text(
    text: Annotated[str, Slot("The text.", multiline=True)],
    times: Annotated[int, Slot("How many times.", min=0)],
    separator: Separator = "",
) -> TextOut:
    """Write a text several times."""
    if times < 0:
        raise InvalidInput(f"RepeatText: times must not be negative, it is {times}")
    between = unescape(separator)
    bounded(len(text) * times + len(between) * max(0, times - 1), MAX_TEXT, "RepeatText", "characters")
    return between.join([text] * times) if text or between else ""


FORMAT_PROMPT = NodeDefinition(
    type="FormatPrompt",
    namespace="core",
    category="Text",
    display_name="Format prompt",
    description="Fills in the {placeholders} of a template, each from the input of its name or from the object. "
    "{{name}} stays as {name}; all other braces are left alone.",
    dynamic_slots=True,
    inputs={
        "template": SlotDefinition(
            data_flow_type=DataFlowType.STRING,
            display_name="template",
            description="The text with its {placeholders}; {user.name} is a part of a value.",
            required=True,
            config={"multiline": True},
        ),
        "values": SlotDefinition(
            data_flow_type=DataFlowType.OBJECT,
            display_name="values",
            description="An object with values for placeholders; inputs of the same name take precedence.",
            required=False,
        ),
    },
    outputs={
        "text": SlotDefinition(
            data_flow_type=DataFlowType.STRING, display_name="text", description="The text with all filled in."
        ),
        "missing": SlotDefinition(
            data_flow_type=DataFlowType.ARRAY,
            display_name="missing",
            description="The placeholders that have no value.",
        ),
    },
    config_schema={
        "missing": SlotDefinition(
            data_flow_type=DataFlowType.STRING,
            display_name="missing",
            description="What becomes of a placeholder without a value: an error, it stays, or it is left out.",
            required=False,
            match_categories=("ComboOption",),
            config={
                "default": "error",
                "suggestions": [{"value": value, "label": value} for value in ("error", "keep", "empty")],
            },
        ),
    },
)


@node(definition=FORMAT_PROMPT)
def format_prompt(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Fill in the placeholders of `template` from all other inputs and from `values`. Raises `InvalidInput`."""
    template, more = inputs.get("template"), inputs.get("values")
    if not isinstance(template, str):
        raise InvalidInput(f"FormatPrompt: template must be text, not {kind_of(template)}")
    if more is not None and not isinstance(more, dict):
        raise InvalidInput(f"FormatPrompt: values must be an object, not {kind_of(more)}")
    handling = config.get("missing", "error")
    choose_from(dict.fromkeys(("error", "keep", "empty")), handling, "FormatPrompt: missing")
    own = {key: value for key, value in inputs.items() if key not in FORMAT_PROMPT.inputs and value is not None}
    values = {**(more or {}), **own}
    missing: list[str] = []

    def find(path: str) -> str | None:
        try:
            value = select(values, read_path(path, "FormatPrompt"), "FormatPrompt")
        except Missing as problem:
            if handling == "error":
                raise InvalidInput(f"FormatPrompt: there is no value for {{{shorten(path)}}}: {problem}") from None
            missing.append(path)
            return None if handling == "keep" else ""
        return as_text(value, f"FormatPrompt: {shorten(path)}")

    return {"text": fill(template, find, "FormatPrompt"), "missing": missing}
