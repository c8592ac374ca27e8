"""The nodes of the assistant's deliberation, beside those that any workflow has."""
