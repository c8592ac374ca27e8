"""Measurements as ratios to a floor in the same process: `python -m benchmarks NAME [--json]`."""
