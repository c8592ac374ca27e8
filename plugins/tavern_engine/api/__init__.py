"""What others may import of this plugin: the contracts of runs, node types and clusters."""
