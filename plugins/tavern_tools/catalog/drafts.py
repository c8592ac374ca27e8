"""The drafts of JSON Schema that tools may be written in, and what validates each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

LATEST = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = {
    LATEST: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""The drafts of JSON Schema, and what validates them in both libraries."""


def draft_of(schema: Mapping[str, Any]) -> str:
    """Return the address of the draft that a schema is written in, as `DRAFTS` has it; of any other draft nothing."""
    named = schema.get("$schema", LATEST)
    address = named.removesuffix("#") if isinstance(named, str) else ""
    _, _, page = address.partition("://")
    return next((known for known in DRAFTS if known.partition("://")[2] == page), "")


@cache
def meta_validator(draft: str) -> Draft202012Validator:
    """Return the validator of schemas by the metaschema of a draft."""
    return validator_of(draft)({"$ref": draft}, offline=True)


def validator_of(draft: str) -> type[Draft202012Validator]:
    """Return the validators of a draft; all have one interface."""
    import jsonschema_rs

    return getattr(jsonschema_rs, DRAFTS[draft])  # type: ignore[no-any-return]
