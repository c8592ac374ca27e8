"""Nothing breaks out of the sandbox: every attack of the table.

By default each is tried once by root and once by an ordinary user, in its first and in its last language, and one
attack of each kind in every sandbox and language; with `--extended` all of them are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.scripts.attacks import on_files, on_kernel, on_network, on_processes, on_resources
from tests.scripts.attacks.attack import SHARED, Attack, Language, Observed
from tests.scripts.attacks.conftest import Started
from tests.scripts.attacks.hosts import HOSTS, NAMES, HostProcess, processes_of, token_of
from tests.scripts.attacks.playground import Playground
from tests.scripts.attacks.table import ATTACKS

KINDS = (on_files, on_processes, on_network, on_kernel, on_resources)


def _is_default(attack: Attack, language: Language, where: str) -> bool:
    languages = [*attack.languages()]
    once = {"root": languages[0], "user": languages[-1]}
    return once.get(where) == language or any(kind.ATTACKS[0] is attack for kind in KINDS)


CASES = [
    pytest.param(
        attack,
        language,
        where,
        id=f"{language}-{attack.name}-{where}",
        marks=[] if _is_default(attack, language, where) else [pytest.mark.extended],
    )
    for attack in ATTACKS
    for language in attack.languages()
    for where in HOSTS
]

_DEGRADED = ("EACCES", "EAFNOSUPPORT", "EPERM", "denied")
"""How the degraded sandbox refuses what the others do not have at all."""

Case = tuple[str, Attack, Language]


class Verdicts:
    """What became of each attack. All hosts, which know nothing of each other, are attacked at the same time."""

    def __init__(self, started: Started, cases: Sequence[Case]) -> None:
        self._started = started
        self._ahead = iter(cases)
        self._known: dict[tuple[str, str, Language], Future[str]] = {}
        self._shown: set[tuple[int, str, Language]] = set()

    def of(self, host: str, attack: Attack, language: Language) -> str:
        """Return why nothing was tried out, or nothing. Raises where the attack was not fended off."""
        for case in islice(self._ahead, len(HOSTS)):  # so that all hosts have work
            self._begin(*case)
        return self._begin(host, attack, language).result()

    def _begin(self, host: str, attack: Attack, language: Language) -> Future[str]:
        key = (host, attack.name, language)
        if key not in self._known:
            self._known[key] = self._started.work_of(host).submit(self._judge, host, attack, language)
        return self._known[key]

    def _judge(self, name: str, attack: Attack, language: Language) -> str:
        host = self._started.host(name)
        if isinstance(host, str):
            return f"{name}: {host}"
        if host.is_degraded and attack.degraded:
            return f"the degraded sandbox does not claim it: {attack.degraded}"
        shown = (host.user, attack.name, language)  # two sandboxes of one user need it once
        if shown not in self._shown:
            lacking = _show_that_it_works(host, attack, language)
            if lacking:
                return f"this machine does not have what is attacked: {lacking}"
            self._shown.add(shown)
        _is_fended_off(host, attack, language)
        for ground in host.folder.glob("ground-*"):  # they become many, and nobody waits for this thread
            shutil.rmtree(ground, ignore_errors=True)
        return ""


@pytest.fixture(scope="module")
def verdicts(started: Started, request: pytest.FixtureRequest) -> Verdicts:
    """What became of the attacks, on the hosts that were selected."""
    specs = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    return Verdicts(started, [(each["where"], each["attack"], each["language"]) for each in specs if "attack" in each])


@pytest.mark.parametrize(("attack", "language", "where"), CASES)
def test_an_attack_that_works_without_a_sandbox_is_fended_off_by_it(
    verdicts: Verdicts, attack: Attack, language: Language, where: str
) -> None:
    reason = verdicts.of(where, attack, language)

    if reason:
        pytest.skip(reason)


def test_there_are_enough_attacks_in_both_languages_and_no_two_have_one_name() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
    assert sum(bool(attack.python) for attack in ATTACKS) >= 60 and sum(bool(attack.nodejs) for attack in ATTACKS) >= 60


@pytest.mark.parametrize("language", ["python", "nodejs"])
def test_an_attack_on_namespaces_is_not_carried_out_by_root_in_those_of_the_host(
    tmp_path: Path, language: Language
) -> None:
    program = shutil.which("node") if language == "nodejs" else sys.executable
    if os.geteuid() != 0 or program is None:
        pytest.skip("needs root" if program else "needs node")
    attack = Attack(
        "leaves a trace", "open('trace', 'w'); return 'tried'", "fs.writeFileSync('trace', ''); return 'tried'"
    )
    (tmp_path / NAMES[language]).write_text(attack.program(language))
    said = {}
    for mounts in (os.readlink("/proc/self/ns/mnt"), "others"):
        target = {"token": "x", "degraded": False, "guarded": True, "mounts": mounts}
        argv = [program, NAMES[language]]
        ran = subprocess.run(
            argv, input=json.dumps(target) + "\n", cwd=tmp_path, capture_output=True, text=True, check=True
        )
        said[mounts] = (Observed(ran.stdout, "", 0, None).loot, (tmp_path / "trace").exists())

    assert list(said.values()) == [(SHARED, False), ("tried", True)]


def _is_fended_off(host: HostProcess, attack: Attack, language: Language) -> None:
    ground = host.playground(attack, language)
    before = host.ask("renew")

    observed = host.attack(attack, language, ground, inside=True)

    assert observed.began(token_of(ground)), f"the attack did not run: {observed}"
    how = _how_it_ended(observed)
    if attack.keeps_its_loot:
        assert observed.loot, observed
        assert how in (attack.ends or ("exit 0",)), observed
    elif how not in attack.ends:
        assert not observed.loot, f"it got {observed.loot!r}"
        refused = (*attack.refused, *_DEGRADED) if host.is_degraded else attack.refused
        assert any(error in observed.error for error in refused), f"it was stopped by something else: {observed}"
    assert host.secret not in observed.stdout + observed.stderr + observed.note
    assert processes_of(observed, token_of(ground)) == []
    assert ground.damage() == []
    _is_unharmed(host, before)
    assert observed.peak_of_host < 64 << 20, "the host's own memory grew"


def _is_unharmed(host: HostProcess, before: dict[str, Any]) -> None:
    after = host.ask("state")
    assert after["arrived"] == [], "a server of the host was reached"
    assert after["victim"], "a process of the host was harmed"
    for kind in ("descriptors", "children", "mounts", "groups"):
        assert after[kind] == before[kind], f"the host has other {kind} than before"


def _show_that_it_works(host: HostProcess, attack: Attack, language: Language) -> str:
    """Run an attack without a sandbox; return what it says that this machine lacks."""
    ground = host.playground(attack, language)
    host.ask("renew")

    observed = host.attack(attack, language, ground, inside=False)

    assert observed.began(token_of(ground)), f"it does not even begin without a sandbox: {observed}"
    if attack.may_lack and attack.may_lack in observed.error:
        return observed.error
    assert observed.loot, f"it does not work without a sandbox: {observed}"
    assert bool(observed.survivors) == attack.survives, f"{observed.survivors} processes live on"
    if attack.damages:
        assert _harm(host, ground), "without a sandbox it should do harm"
    return ""


def _harm(host: HostProcess, ground: Playground) -> list[str]:
    for _ in range(100):
        victim = [] if host.ask("state")["victim"] else ["the victim"]
        if harm := [*ground.damage(), *victim]:
            return harm
        time.sleep(0.02)  # a signal takes its time
    return []


def _how_it_ended(observed: Observed) -> str:
    if observed.reason is not None:
        return observed.reason
    code = observed.exit_code
    return f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
