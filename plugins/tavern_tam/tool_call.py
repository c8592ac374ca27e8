"""The action protocol tool_call: `<tool_call name="…"><param name="…">…</param></tool_call>`, read by `tag_block`, and
JSON in the element or behind `TOOL_CALL:`, read by `json_block`."""

from __future__ import annotations

from tavern_tam.tag_block import Grammar
from tavern_tam.tag_parser import TagParser

TOOL_CALL = Grammar(protocol="tool_call", words=("tool", "call"), has_prefix=True)

INSTRUCTIONS = """\
To call a tool, write an element like this anywhere in your answer; `name` is the ID of one of the tools you were
given, and each of its parameters is a `param`:

<tool_call name="FileOperator.WriteFile">
<param name="filePath">notes/today.md</param>
<param name="content"><![CDATA[First line.
if a < b && c: "done"]]></param>
</tool_call>

- A value within <![CDATA[ and ]]> is taken exactly as it stands. Without them &lt; &gt; &amp; and &quot; stand for
  < > & and ". Use CDATA for every value that holds tags or code; write ]]> within one as ]]]]><![CDATA[>.
- Numbers and booleans are written plainly (<param name="count">3</param>), lists and objects as JSON.
- Each tool_call is one call. Several are made in their order.

Write the element only when you want the call to be made; its result comes in the next message. Do not make results up.
"""


class ToolCallParser(TagParser):
    """Reads `<tool_call>` elements out of text."""

    grammar = TOOL_CALL
