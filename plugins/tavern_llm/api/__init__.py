"""What others may import of this plugin: the contracts of language models."""
