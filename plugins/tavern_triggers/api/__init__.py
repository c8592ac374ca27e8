"""What others may import of this plugin: triggers, their firings, and the hook for further kinds of them."""
