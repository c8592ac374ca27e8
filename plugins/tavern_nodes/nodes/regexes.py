"""Nodes that change text by replacement rules. How rules look and match is in `rules` and `patterns`."""

from __future__ import annotations

from typing import Any

from tavern_host import InvalidInput, NodeDefinition, node
from tavern_nodes.api.patterns import within
from tavern_nodes.platform_slots import slot
from tavern_nodes.rules import apply, merged, read_rules
from tavern_nodes.values import kind_of

APPLY_REGEX = NodeDefinition(
    type="ApplyRegex",
    namespace="core",
    category="Processors",
    display_name="🔄应用正则",
    description="Changes a text by rules with regular expressions, one after another.",
    width=300,
    inputs={
        "inputText": slot("STRING", "输入文本", "The text to change.", required=True),
        "inlineRegexRules": slot(
            "ARRAY",
            "内联正则规则",
            "Rules that are edited on the node itself, unless something is connected. They come before the connected "
            "rules, and in the place of those of the same name.",
            required=False,
            categories=("RegexRuleArray",),
            config={"defaultValue": []},
            actions=(
                {
                    "id": "edit_inline_rules",
                    "icon": "ListBulletIcon",
                    "tooltip": "编辑内联正则规则",
                    "handlerType": "open_panel",
                    "handlerArgs": {"panelId": "RegexEditorModal", "panelTitle": "编辑内联正则规则"},
                },
            ),
        ),
        "regexRules": slot(
            "ARRAY",
            "正则规则输入",
            "Rules that were loaded; those of the node itself come first.",
            required=False,
            categories=("RegexRuleArray",),
        ),
    },
    outputs={"outputText": slot("STRING", "输出文本", "The text after all rules.")},
)


@node(definition=APPLY_REGEX)
async def apply_regex(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Apply the rules that are enabled, in order, on a thread and within `patterns.LIMIT_SECONDS`.

    Raises `InvalidInput` naming the rule that is wrong, or saying that they take too long.
    """
    text = inputs.get("inputText")
    if not isinstance(text, str):
        raise InvalidInput(f"ApplyRegex: inputText must be text, not {kind_of(text)}")
    rules = merged(
        read_rules(inputs.get("inlineRegexRules"), "ApplyRegex: inlineRegexRules"),
        read_rules(inputs.get("regexRules"), "ApplyRegex: regexRules"),
    )
    if not any(rule.enabled for rule in rules):
        return {"outputText": text}
    result = await within(lambda allowance: apply(rules, text, allowance, "ApplyRegex"), "ApplyRegex")
    return {"outputText": result}
