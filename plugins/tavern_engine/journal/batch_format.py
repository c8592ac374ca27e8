"""The format of batches: frames of rows by column.

A batch is a sequence of frames. A frame holds its rows by column: a head in JSON, then the times, the signatures and
the values that are not in the head. Where nothing is unusual, encoding a row is a share of a few calls of C functions.

The head: `n`, how many rows; `i`, their ids; `m`, by row, its status, error, attempts, iteration and what a
cluster did, where these are
not what they mostly are; `g`, how long each signature is, or a list of signatures in hex. Outputs are either a list of
objects, `o`, with `x` for the values that are apart; or `k`, the different lists of their names, with `w`, which of
them each row has, `z`, the rows that have no outputs, and `v`, all values one after another: a list, or `q` or `d`
where they are all integers or all numbers and stand behind the head.
"""

from __future__ import annotations

import struct

PACKED = {int: "q", float: "d"}
"""How columns are packed that are all of one type: `struct` formats."""

MAGIC = b"TVB2"
"""What each frame begins with."""

HEADER = struct.Struct("<4sIII")
"""Magic, CRC-32 of what follows the header, its length, the length of the head in it."""
