"""The plugin's nodes."""
