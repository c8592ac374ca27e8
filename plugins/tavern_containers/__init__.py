"""The first-party plugin `tavern-containers`: scripts in containers, from images that the operator names by digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tavern_host import PluginContext, hookimpl
from tavern_host.contracts.errors import Misconfigured

if TYPE_CHECKING:
    from tavern_scripts.api.scripts import ScriptBackendInfo, ScriptLanguage

PROGRAMS: Mapping[ScriptLanguage, str] = {"python": "python3", "nodejs": "node", "bun": "bun"}
"""What runs a language in its image."""

_IMAGE = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")


@hookimpl
def tavern_register_script_backends(context: PluginContext) -> list[ScriptBackendInfo]:
    """Return the sandbox for the languages that have an image. Raises `Misconfigured`."""
    from tavern_scripts.api.scripts import ScriptBackendInfo

    interpreters = {language: PROGRAMS[language] for language in images(context)}
    if not interpreters:
        return []
    return [
        ScriptBackendInfo(
            name="engine",
            handler="tavern_containers.backend:Containers",
            description="Containers of podman or docker.",
            interpreters=interpreters,
        )
    ]


def images(context: PluginContext) -> dict[ScriptLanguage, str]:
    """Return the images by language. Raises `Misconfigured`: one without a digest could be another one tomorrow."""
    found: dict[ScriptLanguage, str] = {}
    configured = context.settings.get("images") or {}
    for name, image in configured.items() if isinstance(configured, dict) else [("images", configured)]:
        language = next((language for language in PROGRAMS if language == name), None)
        if language is None or not isinstance(image, str) or not _IMAGE.fullmatch(image):
            raise Misconfigured(
                f"extensions.tavern-containers.images: {name!r:.40} must be one of {', '.join(PROGRAMS)}, with an "
                f"image and its digest, such as docker.io/library/python@sha256:…; found {image!r:.200}"
            )
        found[language] = image
    return found
