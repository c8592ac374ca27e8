"""What a model of a server is set up with, whatever wire it speaks."""

from __future__ import annotations

import os
import re
from urllib.parse import urlencode, urlsplit, urlunsplit

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.wire import Model

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HTTPS_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"})
_ENDS = re.compile(r"/(chat/completions|completions|messages|responses|embeddings)/?$")
_HOST = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|\[[\da-fA-F:]+\]|[\w-]+(?=:\d))(:\d+)?(/|\?|$)")
_NEAR = re.compile(r"localhost|127\.|10\.|192\.168\.|\[|[\w-]+:\d")


def _mended(address: str) -> str:
    """Return an address as it was meant: without the path of one request at its end, and with a scheme."""
    address = address.strip()
    if "://" not in address and _HOST.match(address):
        address = f"{'http' if _NEAR.match(address) else 'https'}://{address}"
    head, mark, query = address.partition("?")
    return f"{_ENDS.sub('', head)}{mark}{query}"


class OpenAiOptions(Model):
    """What an `openai`, `anthropic` or `gemini` model is set up with; `parameters` are sent with each request unless
    the request has its own, and `headers` and `query` beside what the wire needs.

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
    organization: str | None = None
    project: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    query: dict[str, str] = Field(default_factory=dict)
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
        value = _mended(value)
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

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _TOKEN.fullmatch(name) or name.lower() in _HTTPS_OWN:
                raise ValueError(f"{name[:40]!r} is no header that can be set")
            if not (text.isascii() and text.isprintable()):
                raise ValueError(f"{name} has characters that cannot be sent; check for line ends")
        return value

    def own_headers(self) -> dict[str, str]:
        """Return the headers that are set up beside those of the wire."""
        about = {"OpenAI-Organization": self.organization, "OpenAI-Project": self.project}
        return {name: value for name, value in about.items() if value} | self.headers

    def address(self, path: str = "chat/completions", version: str = "") -> str:
        """Return the address of a part of the API, with the queries of `base_url` and of `path`, and `query`. An
        address without a `version` gets it."""
        parts = urlsplit(self.base_url)
        below, _, asked = path.partition("?")
        base = parts.path.rstrip("/")
        if version and not re.search(r"/v\d", base):
            base = f"{base}/{version}"
        queries = [one for one in (parts.query, asked, urlencode(self.query)) if one]
        return urlunsplit((parts.scheme, parts.netloc, f"{base}/{below}", "&".join(queries), ""))

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
