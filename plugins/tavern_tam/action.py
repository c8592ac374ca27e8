"""The action protocol ACTION: calls written as an element, in either of two shapes; `tag_block` reads it."""

from __future__ import annotations

from tavern_tam.tag_block import Grammar
from tavern_tam.tag_parser import TagParser

ACTION = Grammar(
    protocol="action",
    words=("action",),
    tool=frozenset({"toolid"}),
    options=frozenset({"requestid", "retry"}),
    wrappers=frozenset({"executioncontext"}),
)

INSTRUCTIONS = """\
To call a tool, write an element like this anywhere in your answer, with the ID of one of the tools you were given and
an `input` for each parameter:

<ACTION>
  <tool_id>FileOperator.WriteFile</tool_id>
  <inputs>
    <input name="filePath">notes/today.md</input>
    <input name="content"><![CDATA[First line.
if a < b && c: "done"]]></input>
  </inputs>
</ACTION>

- A value within <![CDATA[ and ]]> is taken exactly as it stands. Without them &lt; &gt; &amp; and &quot; stand for
  < > & and ". Use CDATA for every value that holds tags or code; write ]]> within one as ]]]]><![CDATA[>.
- Numbers and booleans are written plainly (<input name="count">3</input>), lists and objects as JSON.
- Each ACTION is one call. Several are made in their order.

Write the element only when you want the call to be made; its result comes in the next message as an OBSERVATION. Do
not make results up.
"""


class ActionParser(TagParser):
    """Reads `<ACTION>` elements out of text."""

    grammar = ACTION
