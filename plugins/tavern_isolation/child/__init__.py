"""The program of a child process: one plugin, behind a link to its host."""
