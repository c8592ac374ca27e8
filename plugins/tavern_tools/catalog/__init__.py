"""Tools as data: read from files, checked, completed, found, and described."""
