"""What survives the end of the process: the journal of node results, the run store, and leases on runs."""
