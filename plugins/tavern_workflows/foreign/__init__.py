"""Graphs of other programs as workflows: what they say is read into one form, and of that a workflow is made. A node
that has no counterpart here stands in it as a placeholder, with its values; nothing of it is run or fetched."""
