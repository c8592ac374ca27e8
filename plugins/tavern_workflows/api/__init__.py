"""What others may import of this plugin: the contracts of workflow documents, their rules and files."""
