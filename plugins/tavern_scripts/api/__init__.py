"""What others may import of this plugin: the contracts of scripts in the sandbox."""
