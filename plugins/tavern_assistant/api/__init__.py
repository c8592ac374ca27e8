"""What others may import of this plugin: the contracts of the creation assistant."""
