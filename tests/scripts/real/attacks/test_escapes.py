"""Nothing breaks out of the sandbox: every attack, in every sandbox that this machine has.

By default each attack that needs a sandbox for itself is tried once by root and once by an ordinary user, in its first and
in its last language; with `--extended` in every sandbox and language.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from helpers.repetition import Failures, repetitions

from tests.scripts.real.attacks import program
from tests.scripts.real.attacks.attack import SHARED, Attack, attempt
from tests.scripts.real.attacks.hosts import HostProcess, Language, Observed, processes_of, token_of
from tests.scripts.real.attacks.on_javascript import NAMES
from tests.scripts.real.attacks.playground import Playground

ATTACKS = [each for each in program.ATTACKS.values() if not each.no_attack]
DEGRADED = ("EACCES", "EAFNOSUPPORT", "EPERM", "denied")
"""How the degraded sandbox refuses what the others do not have at all."""
AT_ONCE = 4
shown: dict[tuple[int, str, str], bool] = {}
"""What was tried without a sandbox already, by which user; False where this machine does not have what is attacked."""


def languages(attack: Attack) -> list[Language]:
    return [*(["python"] if attack.python else []), *(["nodejs"] if attack.name in NAMES else [])]  # type: ignore[list-item]


def test_there_are_enough_attacks_in_both_languages() -> None:
    assert {*NAMES} <= {*program.ATTACKS}
    assert sum(attack.python is not None for attack in ATTACKS) >= 60
    assert len({*NAMES}) == len(NAMES) >= 60


@pytest.mark.parametrize("language", ["python", "nodejs"])
@pytest.mark.parametrize("namespaced", [False, True])
def test_no_attack_gets_out(host: HostProcess, language: Language, namespaced: bool) -> None:
    chosen = [each for each in ATTACKS if not each.alone and each.namespaced == namespaced]
    attacks = [each for each in chosen if language in languages(each) and not (host.is_degraded and each.degraded)]
    assert len(attacks) > 5
    with Failures() as failures:
        show(host, [attacks], language, failures)
        hold(host, [attacks], language, failures)


@pytest.mark.timeout(600)
def test_no_attack_in_its_own_sandbox_gets_out(host: HostProcess) -> None:
    chosen = [each for each in ATTACKS if each.alone and not (host.is_degraded and each.degraded)]
    where: dict[Language, list[Attack]] = {"python": [], "nodejs": []}
    for each in chosen:
        by_default = {"root": languages(each)[:1], "user": languages(each)[-1:], "degraded": []}[host.name]
        for language in repetitions(0, 1) * languages(each) or by_default:
            where[language].append(each)
    with Failures() as failures:
        for language, attacks in where.items():
            show(host, [[each for each in attacks if not each.keeps_its_loot]], language, failures)
            for at in range(0, len(attacks), AT_ONCE):
                alone = [[each] for each in attacks[at : at + AT_ONCE]]
                show(host, alone, language, failures)
                hold(host, alone, language, failures)


def show(host: HostProcess, runs: Sequence[list[Attack]], language: Language, failures: Failures) -> None:
    """Run attacks without a sandbox, where they work."""
    missing = [[each for each in run if (host.user, each.name, language) not in shown] for run in runs]
    for _, run, ground, observed in ran(missing, host, language, failures, inside=False):
        harm = [*ground.damage(), *([] if host.ask("state")["victim"] else ["the victim"])]
        for attack, (loot, error) in zip(run, observed.verdicts, strict=True):
            with failures.row(f"{language}, without a sandbox: {attack.name}"):
                is_there = not attack.may_lack or attack.may_lack not in error
                shown[host.user, attack.name, language] = is_there
                assert loot or not is_there, f"it does not work: {error}"
                assert bool(observed.survivors) == attack.survives, f"{observed.survivors} processes live on"
                assert any(line.startswith(attack.damages) for line in harm or [""]), harm


def hold(host: HostProcess, runs: Sequence[list[Attack]], language: Language, failures: Failures) -> None:
    """Run attacks in the sandbox, where they come to nothing."""
    before = host.ask("renew")
    for round, run, ground, observed in ran(runs, host, language, failures, inside=True):
        for attack, (loot, error) in zip(run, observed.verdicts or [(None, "")] * len(run), strict=True):
            with failures.row(f"{language}: {attack.name}"):
                if attack.keeps_its_loot:
                    assert loot, error
                    assert observed.end in (attack.ends or ("exit 0",)), observed
                elif (
                    attack.rounds == round + 1
                    and observed.end not in attack.ends
                    and shown.get((host.user, attack.name, language), True)
                ):
                    assert not loot, f"it got {loot!r}"
                    refused = (*attack.refused, *DEGRADED) if host.is_degraded else attack.refused
                    assert any(each in error for each in refused), f"it was stopped by something else: {error}"
        with failures.row(f"{language}: what is left of {[attack.name for attack in run]}"):
            assert host.secret not in observed.stdout + observed.stderr + observed.note
            assert processes_of(observed, token_of(ground)) == []
            assert ground.damage() == []
            assert observed.peak_of_host < 64 << 20, "the host's own memory grew"
    after = host.ask("state")
    assert after["arrived"] == [], "a server of the host was reached"
    assert after["victim"], "a process of the host was harmed"
    for kind in ("descriptors", "children", "mounts", "groups"):
        assert after[kind] == before[kind], f"the host has other {kind} than before"


def ran(
    runs: Sequence[list[Attack]], host: HostProcess, language: Language, failures: Failures, *, inside: bool
) -> list[tuple[int, list[Attack], Playground, Observed]]:
    """Run lists of attacks at the same time, and again those that have a second round."""
    done = []
    runs = [run for run in runs if run]
    grounds = [host.playground() for _ in runs]
    for round in range(2):
        again = [[each for each in run if each.rounds > round] for run in runs]
        started = [
            host.start(run, language, ground, inside=inside, round=round) if run else None
            for run, ground in zip(again, grounds, strict=True)
        ]
        ended = [host.end(number) if number is not None else Observed() for number in started]
        done += [
            (round, run, ground, observed) for run, ground, observed in zip(again, grounds, ended, strict=True) if run
        ]
    for _, run, ground, observed in done:
        with failures.row(f"{language}: {[attack.name for attack in run]}"):
            assert f"began {token_of(ground)} pid:[" in observed.stdout, f"it did not run: {observed}"
            assert len(observed.verdicts) == len(run) or run[0].alone, observed
    return done


def test_root_leaves_the_mounts_of_the_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    attack = Attack("does what it likes", lambda target: "done", namespaced=True)
    here = {"inside": False, "mounts": os.readlink("/proc/self/ns/mnt")}

    assert attempt(attack, here) == (SHARED, "")
    assert attempt(attack, {**here, "mounts": "those of another"}) == ("done", "")
