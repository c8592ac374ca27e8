"""The instructions with which a language model can write TAM."""

from __future__ import annotations

INSTRUCTIONS = """\
To call a tool, write a block like this anywhere in your answer:

<|[REQUEST_TOOL]|>
command:「始」the tool's ID「末」
parameter_name:「始」the value「末」
<|[END_TOOL]|>

- `command` is the ID of one of the tools you were given; every other key is one of its parameters.
- A value is everything between 「始」 and 「末」, taken exactly as it stands: line breaks, quotes, code and JSON
  need no escaping. Close every value with 「末」 and every block with <|[END_TOOL]|>.
- Numbers and booleans are written plainly (「始」3「末」, 「始」true「末」), lists and objects as JSON.
- A value that itself contains 「始」, 「末」 or one of the block markers is written between 「始ESCAPE:x」 and
  「末ESCAPE:x」, where x is a word of your choice that the value does not contain in this way.
- A line that begins with # is a comment.

To do several things in order, number the keys. Steps run by their numbers; a step that fails ends the chain,
unless it says on_error_N:「始」continue「末」. With retry_N:「始」2「末」 a failed step is tried up to two times more.
A value may hold the result of an earlier step, @{step1.result}, or a part of it, @{step1.result.path}:

<|[REQUEST_TOOL]|>
# step 1: write the file
command1:「始」FileOperator.WriteFile「末」
filePath1:「始」notes/today.md「末」
content1:「始」First line.
Second line.「末」

# step 2: add to it
command2:「始」FileOperator.AppendFile「末」
filePath2:「始」notes/today.md「末」
content2:「始」Third line.「末」
<|[END_TOOL]|>

Write the block only when you want the call to be made; its results come in the next message. Do not write the
block markers otherwise, and do not make results up.
"""
