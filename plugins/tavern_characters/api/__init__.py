"""The service `characters` and its data: what others may import of the plugin."""
