"""What authors of nodes use, and what runs a node of theirs. Node types that there are belong to plugins."""
