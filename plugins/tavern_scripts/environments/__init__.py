"""Dependency environments: what a script's manifest asks for, installed once in a sandbox of its own and kept
read-only. No script runs here."""
