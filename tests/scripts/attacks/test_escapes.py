"""Nothing breaks out of the sandbox: every attack of the table, in every sandbox that this machine has."""

from __future__ import annotations

import pytest

from tests.scripts.attacks.attack import Attack, Language, Observed
from tests.scripts.attacks.hosts import HostProcess, processes_of, token_of
from tests.scripts.attacks.playground import Playground
from tests.scripts.attacks.table import ATTACKS

CASES = [
    pytest.param(attack, language, id=f"{language}-{attack.name}")
    for attack in ATTACKS
    for language in attack.languages()
]

_DEGRADED = ("EACCES", "EAFNOSUPPORT", "EPERM", "denied")
"""How the degraded sandbox refuses what the others do not have at all."""

_shown: set[tuple[int, str, str]] = set()
"""What was shown to work without a sandbox, as which user: two sandboxes of one user need it once."""


@pytest.mark.parametrize(("attack", "language"), CASES)
def test_an_attack_that_works_without_a_sandbox_is_fended_off_by_it(
    host: HostProcess, attack: Attack, language: Language
) -> None:
    if host.is_degraded and attack.degraded:
        pytest.skip(f"the degraded sandbox does not claim it: {attack.degraded}")
    if (host.user, attack.name, language) not in _shown:
        _show_that_it_works(host, attack, language)
    ground = host.playground(attack, language)
    before = host.ask("renew")

    observed = host.attack(attack, language, ground, inside=True)

    assert observed.began(token_of(ground)), f"the attack did not run: {observed}"
    how = _how_it_ended(observed)
    if attack.keeps_its_loot:
        assert observed.loot and how in (*attack.ends, "exit 0"), observed
        assert not attack.ends or how in attack.ends, observed
    elif how not in attack.ends:
        assert not observed.loot, f"it got {observed.loot!r}"
        refused = (*attack.refused, *_DEGRADED) if host.is_degraded else attack.refused
        assert any(error in observed.error for error in refused), f"it was stopped by something else: {observed}"
    assert host.secret not in observed.stdout + observed.stderr + observed.note
    assert processes_of(observed, token_of(ground)) == []
    assert ground.damage() == []
    after = host.ask("state")
    assert after["arrived"] == [], "a server of the host was reached"
    assert after["victim"], "a process of the host was harmed"
    for kind in ("descriptors", "children", "mounts", "groups"):
        assert after[kind] == before[kind], f"the host has other {kind} than before"
    assert observed.peak_of_host < 64 << 20, "the host's own memory grew"


def test_there_are_enough_attacks_in_both_languages_and_no_two_have_one_name() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
    assert sum(bool(attack.python) for attack in ATTACKS) >= 60 and sum(bool(attack.nodejs) for attack in ATTACKS) >= 40


def _show_that_it_works(host: HostProcess, attack: Attack, language: Language) -> None:
    ground = host.playground(attack, language)
    host.ask("renew")

    observed = host.attack(attack, language, ground, inside=False)

    assert observed.began(token_of(ground)), f"it does not even begin without a sandbox: {observed}"
    if attack.may_lack and attack.may_lack in observed.error:
        pytest.skip(f"this machine does not have what is attacked: {observed.error}")
    assert observed.loot, f"it does not work without a sandbox: {observed}"
    assert bool(observed.survivors) == attack.survives, f"{observed.survivors} processes live on"
    if attack.damages:
        assert _harm(host, ground), "without a sandbox it should do harm"
    _shown.add((host.user, attack.name, language))


def _harm(host: HostProcess, ground: Playground) -> list[str]:
    state = host.ask("state")
    return ground.damage() + ([] if state["victim"] else ["the victim"])


def _how_it_ended(observed: Observed) -> str:
    if observed.reason is not None:
        return observed.reason
    code = observed.exit_code
    return f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
