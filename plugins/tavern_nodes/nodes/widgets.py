"""`TestWidgets`: shows a control of every kind and gives what was entered."""

from __future__ import annotations

import copy
from typing import Any

from tavern_host import NodeDefinition, node
from tavern_nodes.platform_slots import choices, slot

_MARKDOWN = '# 标题\n\n这是一段*Markdown*文本，包含一个[链接](https://example.com)。\n\n```python\nprint("Hello")\n```'
_SCRIPT = 'function greet(name) {\n  console.log(`Hello, ${name}!`);\n}\ngreet("World");'

TEST_WIDGETS = NodeDefinition(
    type="TestWidgets",
    namespace="core",
    category="实用工具",
    display_name="🧪测试组件节点",
    description="Shows a control of every kind and gives what was entered.",
    inputs={
        "string_input": slot(
            "STRING",
            "单行文本",
            "A text of one line.",
            required=True,
            config={"default": "这是默认文本", "multiline": False, "placeholder": "请输入单行文本"},
        ),
        "text_input": slot(
            "STRING",
            "多行文本",
            "A text of several lines.",
            required=True,
            categories=("UiBlock", "CanPreview"),
            config={"default": "这是默认的\n多行文本", "multiline": True, "placeholder": "请输入多行文本"},
        ),
        "markdown_input": slot(
            "STRING",
            "Markdown文本",
            "A text in Markdown.",
            required=False,
            categories=("Markdown", "CanPreview", "UiBlock"),
            config={"default": _MARKDOWN, "multiline": True, "languageHint": "markdown"},
        ),
        "int_input": slot(
            "INTEGER",
            "整数",
            "A whole number.",
            required=True,
            config={"default": 10, "min": 0, "max": 100, "step": 1},
        ),
        "float_input": slot(
            "FLOAT",
            "浮点数",
            "A number with a fraction.",
            required=True,
            config={"default": 0.5, "min": 0, "max": 1, "step": 0.01},
        ),
        "boolean_toggle": slot("BOOLEAN", "布尔值", "A switch.", required=True, config={"default": True}),
        "combo_select": slot(
            "STRING",
            "下拉选择",
            "A choice of several.",
            required=True,
            categories=("ComboOption",),
            config={"default": "选项A", "suggestions": choices("选项A", "选项B", "选项C")},
        ),
        "json_input": slot(
            "OBJECT",
            "JSON对象",
            "An object, edited as JSON.",
            required=False,
            categories=("Json", "CanPreview", "UiBlock"),
            config={
                "default": {"name": "咕咕", "type": "猫头鹰娘", "skill": "智慧"},
                "placeholder": "请输入或编辑JSON对象",
            },
        ),
        "javascript_code_input": slot(
            "STRING",
            "JS代码片段",
            "A piece of JavaScript, in an editor of its own.",
            required=False,
            categories=("Code", "JavaScript", "CanPreview"),
            config={"default": _SCRIPT, "languageHint": "javascript"},
        ),
        "string_with_suggestions": slot(
            "STRING",
            "带建议的文本",
            "A text, with suggestions.",
            required=False,
            config={
                "default": "默认值",
                "placeholder": "输入或选择建议",
                "suggestions": choices("预设A", "预设B", "另一个预设"),
            },
        ),
        "int_with_suggestions": slot(
            "INTEGER",
            "带建议的整数",
            "A whole number, with suggestions.",
            required=False,
            config={
                "default": 512,
                "min": 64,
                "max": 4096,
                "step": 64,
                "suggestions": choices(256, 512, 1024, 2048),
            },
        ),
        "float_with_suggestions": slot(
            "FLOAT",
            "带建议的浮点数",
            "A number, with suggestions.",
            required=False,
            config={
                "default": 7.5,
                "min": 0,
                "max": 15,
                "step": 0.5,
                "suggestions": choices(1, 5, 7.5, 10, 12.5, labels=("1.0", "5.0", "7.5", "10.0", "12.5")),
            },
        ),
        "button_trigger": slot(
            "WILDCARD",
            "触发按钮",
            "A button; it changes nothing.",
            required=False,
            categories=("Trigger",),
            config={"label": "点我执行操作"},
        ),
    },
    outputs={
        "string_output": slot("STRING", "单行文本", "The text of one line."),
        "text_output": slot("STRING", "多行文本", "The text of several lines."),
        "markdown_output": slot("STRING", "Markdown文本", "The text in Markdown.", categories=("Markdown",)),
        "int_output": slot("INTEGER", "整数", "The whole number."),
        "float_output": slot("FLOAT", "浮点数", "The number with a fraction."),
        "boolean_output": slot("BOOLEAN", "布尔值", "Whether the switch is on."),
        "combo_output": slot("STRING", "选择项", "The choice."),
        "json_output": slot("OBJECT", "JSON对象", "The object.", categories=("Json",)),
        "javascript_code_output": slot(
            "STRING", "JS代码片段", "The piece of JavaScript.", categories=("Code", "JavaScript")
        ),
        "string_with_suggestions_output": slot("STRING", "带建议文本输出", "The text with suggestions."),
        "int_with_suggestions_output": slot("INTEGER", "带建议整数输出", "The whole number with suggestions."),
        "float_with_suggestions_output": slot("FLOAT", "带建议浮点数输出", "The number with suggestions."),
    },
)

_SOURCES = {
    "string_output": "string_input",
    "text_output": "text_input",
    "markdown_output": "markdown_input",
    "int_output": "int_input",
    "float_output": "float_input",
    "boolean_output": "boolean_toggle",
    "combo_output": "combo_select",
    "json_output": "json_input",
    "javascript_code_output": "javascript_code_input",
    "string_with_suggestions_output": "string_with_suggestions",
    "int_with_suggestions_output": "int_with_suggestions",
    "float_with_suggestions_output": "float_with_suggestions",
}


@node(definition=TEST_WIDGETS)
def test_widgets(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Give each input's value, or its default, at the output beside it."""
    return {
        output: inputs[source] if source in inputs else copy.deepcopy(TEST_WIDGETS.inputs[source].default)
        for output, source in _SOURCES.items()
    }
