"""What the operator allows scripts to do, read from the operator's and the environment's settings alone: a project may
have been sent by anybody and gives itself no rights. Grants nothing by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tavern_host.context import Settings
from tavern_host.contracts.errors import InvalidInput, Misconfigured
from tavern_scripts.api.allowlist import parse_pattern
from tavern_scripts.api.scripts import RunnableLanguage, ScriptLimits
from tavern_scripts.policy.review import inner_path

LANGUAGES: tuple[RunnableLanguage, ...] = get_args(RunnableLanguage)

_MB = 1 << 20
_PREFIX = "extensions.tavern-scripts."
_TRUSTED = ("environment", "operator")
_MOST = 10_000
"""How many entries a list has at most."""


@dataclass(frozen=True)
class Policy:
    """What is allowed. `limits.wall` holds where nobody asks for a time; `most_wall` is the longest time, in seconds.
    `most_calls` is how many calls of tools a script may make.

    `folders` hold the scripts that are named by a path. `hosts` and `writes` are patterns; `interpreters` are paths of
    programs by language. `warm` interpreters wait for scripts, `warm_idle` seconds at most; `sessions` are open at the
    same time, each waits `session_idle` seconds for its next call and has `session_cpu` seconds of the CPU in all. With
    `approved`, only scripts with one of these hashes run.
    """

    folders: tuple[Path, ...]
    hosts: tuple[str, ...]
    writes: tuple[str, ...]
    languages: frozenset[RunnableLanguage]
    interpreters: Mapping[RunnableLanguage, str]
    limits: ScriptLimits
    most_wall: float
    most_files: int
    most_calls: int
    concurrent: int
    warm: int
    warm_idle: float
    sessions: int
    session_idle: float
    session_cpu: float
    build_scripts: bool
    approved: frozenset[str] | None
    allow_degraded: bool
    unsafe_unsandboxed: bool


def read_policy(settings: Settings, root: Path) -> Policy:
    """Return the policy as it is now; `root` is the project, to which relative folders belong.

    Raises `Misconfigured` for a setting that cannot be used: nothing runs then, since it may forbid something.
    """
    read = _Reader(settings)
    default = read.number("timeoutSeconds", 30)
    limits = ScriptLimits(
        wall=default,
        cpu=read.number("cpuSeconds", 60),
        memory=int(read.number("memoryMegabytes", 512) * _MB),
        processes=int(read.number("processes", 64)),
        files=int(read.number("openFiles", 256)),
        file_size=int(read.number("fileMegabytes", 64) * _MB),
        scratch=int(read.number("scratchMegabytes", 64) * _MB),
        input=int(read.number("inputKilobytes", 4096) * 1024),
        output=int(read.number("outputKilobytes", 4096) * 1024),
        log=int(read.number("logKilobytes", 256) * 1024),
    )
    return Policy(
        folders=tuple(_folder(text, root) for text in read.texts("folders", ["scripts"])),
        hosts=tuple(read.hosts("allowedHosts")),
        writes=tuple(read.writes("writablePaths", [".cache/**"])),
        languages=frozenset(read.languages("languages", list(LANGUAGES))),
        interpreters=read.interpreters("interpreters"),
        limits=limits,
        most_wall=max(default, read.number("maxTimeoutSeconds", 300)),
        most_files=int(read.number("maxFiles", 100)),
        most_calls=int(read.number("maxToolCalls", 20_000, or_none=True)),
        concurrent=int(read.number("concurrentRuns", 16)),
        warm=int(read.number("warmInterpreters", 0, or_none=True)),
        warm_idle=read.number("warmIdleSeconds", 300),
        sessions=int(read.number("sessions", 8, or_none=True)),
        session_idle=read.number("sessionIdleSeconds", 900),
        session_cpu=read.number("sessionCpuSeconds", 600),
        build_scripts=read.yes("buildScripts"),
        approved=read.approved("approvedScripts"),
        allow_degraded=read.yes("allowDegraded"),
        unsafe_unsandboxed=read.yes("unsafeAllowUnsandboxed"),
    )


class _Reader:
    """Reads single settings of the trusted layers. Each method raises `Misconfigured`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def value(self, key: str, default: Any) -> Any:
        spoilt = [layer for layer in self._settings.left_out(key) if layer in _TRUSTED]
        if spoilt:
            raise Misconfigured(
                f"no script is run, since the {spoilt[0]}'s setting {_PREFIX}{key} cannot be used; "
                "mend it, or take it out"
            )
        layers = self._settings.layers(key)
        return next((layers[layer] for layer in _TRUSTED if layers.get(layer) is not None), default)

    def number(self, key: str, default: float, *, or_none: bool = False) -> float:
        value = self.value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (value > 0 or (or_none and value == 0)):
            raise _wrong(key, "a number from 0 on" if or_none else "a number above 0", value)
        return float(value)

    def yes(self, key: str) -> bool:
        value = self.value(key, False)
        if not isinstance(value, bool):
            raise _wrong(key, "true or false", value)
        return value

    def texts(self, key: str, default: list[str]) -> list[str]:
        value = self.value(key, default)
        if not isinstance(value, list) or len(value) > _MOST or not all(isinstance(t, str) and t for t in value):
            raise _wrong(key, "a list of texts", value)
        return value

    def hosts(self, key: str) -> list[str]:
        value = self.texts(key, [])
        try:
            return [str(parse_pattern(text)) for text in value]
        except InvalidInput as error:
            raise Misconfigured(f"no script is run: the setting {_PREFIX}{key}: {error.message}") from None

    def writes(self, key: str, default: list[str]) -> list[str]:
        value = self.texts(key, default)
        for text in value:
            if inner_path(text) is None:
                raise _wrong(key, "a list of paths in a script's own folder, such as .cache/**", text)
        return value

    def languages(self, key: str, default: list[RunnableLanguage]) -> list[RunnableLanguage]:
        value = self.texts(key, [*default])
        return [_language(key, text) for text in value]

    def interpreters(self, key: str) -> dict[RunnableLanguage, str]:
        value = self.value(key, {})
        if not isinstance(value, dict) or not all(isinstance(p, str) and Path(p).is_absolute() for p in value.values()):
            raise _wrong(key, "an object with absolute paths of programs by language", value)
        return {_language(key, name): path for name, path in value.items()}

    def approved(self, key: str) -> frozenset[str] | None:
        if self.value(key, None) is None:
            return None
        return frozenset(text.removeprefix("sha256:").lower() for text in self.texts(key, []))


def _language(key: str, text: str) -> RunnableLanguage:
    for language in LANGUAGES:
        if language == text:
            return language
    raise _wrong(key, f"one of {', '.join(LANGUAGES)}", text)


def _folder(text: str, root: Path) -> Path:
    return root / Path(text).expanduser()


def _wrong(key: str, expected: str, value: object) -> Misconfigured:
    return Misconfigured(f"no script is run: the setting {_PREFIX}{key} must be {expected}, found {value!r:.80}")


class PolicyReader:
    """Reads the policy again whenever a setting has changed."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self._settings = settings
        self._root = root
        self._known: tuple[int, Policy] | None = None

    def __call__(self) -> Policy:
        """Return the policy as it is now. Raises `Misconfigured`."""
        revision = self._settings.revision
        if self._known is None or self._known[0] != revision:
            self._known = (revision, read_policy(self._settings, self._root))
        return self._known[1]


Policies = Callable[[], Policy]
