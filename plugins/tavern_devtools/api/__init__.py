"""What others may import of this plugin: what is found while a plugin is checked, the hook by which each plugin checks
what others contribute to it, and the service that asks them all."""
