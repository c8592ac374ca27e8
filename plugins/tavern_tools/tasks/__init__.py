"""Calls that outlive the request for them: kept, decided about, carried out, told of."""
