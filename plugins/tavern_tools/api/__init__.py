"""What others may import of this plugin: the contracts of tools, their calls and action protocols."""
