"""What is left of runs when the process ends: the journal, its store, and who goes on with which run."""
