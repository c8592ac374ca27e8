"""What others may import of this plugin: the contracts of known weaknesses of installed packages."""
