"""What others may import of this plugin: the contracts of figures of the host, and of known weaknesses."""
