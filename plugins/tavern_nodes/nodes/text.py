"""Nodes that make and change text. Searching is plain: a pattern language would let a small input run long."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from tavern_host import Config, InvalidInput, NodeDefinition, Slot, node
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
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
    unescape,
)

_PLACEHOLDER = re.compile(r"\{\{([\w.]++)\}\}|\{(\w++(?:\.\w++)*+)\}")

TextOut = Annotated[str, Slot("The text.", key="text")]
Separator = Annotated[str, Slot(r"What stands between the parts; \n is a new line, \t a tab.")]

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
    given = inputs.get("text_inputs")
    parts = given if isinstance(given, list) else [given]
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
    pieces: list[str] = []
    filled: dict[str, str] = {}
    end = length = 0
    for match in _PLACEHOLDER.finditer(template):
        path = match[2]
        if path and path not in filled:
            filled[path] = as_text(look_up(values, path, "FormatText"), f"FormatText: {path}")
        pieces += (template[end : match.start()], filled[path] if path else f"{{{match[1]}}}")
        end = match.end()
        length += len(pieces[-2]) + len(pieces[-1])
        bounded(length, MAX_TEXT, "FormatText", "characters")
    return join("", [*pieces, template[end:]], "FormatText")


@node(category="Text", display_name="Text length")
def text_length(
    text: Annotated[str, Slot("The text to measure.", multiline=True)],
) -> Annotated[int, Slot("The number of characters.", key="length")]:
    """Count the characters of a text."""
    return len(text)
