"""The nodes of characters."""
