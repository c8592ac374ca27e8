"""What a model of the adapter `openai` is set up with."""

from __future__ import annotations

import os
from urllib.parse import urlsplit, urlunsplit

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.wire import Model


class OpenAiOptions(Model):
    """What an `openai` model is set up with; `parameters` are sent with each request unless the request has its own.

    Seconds: `connect_timeout` until there is a connection; `first_token_timeout` until a stream has its first token,
    by default as long as `timeout`, for which the server may stay silent after that, and before a whole answer.
    `takes_tools` is False for a server that takes tools and does nothing with them: it reads about them instead.
    `takes_images` is False for a model that sees nothing: a message with a picture is refused before it is sent.
    """

    model_config = ConfigDict(alias_generator=None)

    base_url: str
    model: str = Field(min_length=1)
    api_key: str | None = Field(default=None, repr=False)
    api_key_env: str | None = None
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    timeout: float = Field(default=120, gt=0, le=3600)
    connect_timeout: float = Field(default=15, gt=0, le=3600)
    first_token_timeout: float | None = Field(default=None, gt=0, le=3600)
    takes_tools: bool = True
    takes_images: bool = True

    @property
    def first_token(self) -> float:
        """For how many seconds a stream may have no token yet."""
        return self.first_token_timeout or self.timeout

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            port_is_right = parts.port is None or parts.port > 0
        except ValueError:
            port_is_right = False
        if not port_is_right or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address such as https://api.example.com/v1")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold credentials; use api_key or api_key_env")
        return value

    @model_validator(mode="after")
    def _has_one_key(self) -> OpenAiOptions:
        if self.api_key is not None and self.api_key_env is not None:
            raise ValueError("give api_key or api_key_env, not both")
        return self

    def address(self, path: str = "chat/completions") -> str:
        """Return the address of a part of the API, with the query of `base_url` if it has one."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{path}", parts.query, ""))

    def origin(self) -> str:
        """Return scheme, host and port: how messages name the server."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def key(self) -> str | None:
        """Return the API key. Raises `Misconfigured` where the named variable is not set or no key."""
        key = self.api_key
        if self.api_key_env is not None:
            key = os.environ.get(self.api_key_env)
            if not key:
                raise Misconfigured(f"the environment variable {self.api_key_env}, named by api_key_env, is not set")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
            raise Misconfigured("the API key has characters that cannot be sent; check for line ends and blanks")
        return key.strip() if key is not None else None
