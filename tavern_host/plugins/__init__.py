"""Plugins from their files to their end: found, reviewed, admitted, loaded, unloaded.

Knows no kind of contribution, and calls nothing of theirs: `hooks` and `services` do.
"""
