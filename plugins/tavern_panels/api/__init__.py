"""What others may import of this plugin: the document of a panel, and the service that keeps panels."""
