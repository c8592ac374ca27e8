"""Lets the tests below this folder import what lies in it."""
