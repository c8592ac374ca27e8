"""The nodes of this plugin."""
