"""Patches (RFC 6902) of documents: applied to a copy, in order, all or nothing. What is valid is the business of the
services that keep the documents."""
