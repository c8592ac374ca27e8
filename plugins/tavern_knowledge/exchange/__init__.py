"""Reads and writes the lorebooks and character cards of SillyTavern and its kin. Knows nothing of files or rights."""
