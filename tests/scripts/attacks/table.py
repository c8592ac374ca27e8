"""The table of attacks on the sandbox. Each of them runs in every sandbox that this machine has, made by root and by an
ordinary user, and, to show that the attack itself works, without a sandbox.

To add an attack, append an `Attack` to the list of its kind, `on_files`, `on_processes`, `on_network`, `on_kernel` or
`on_resources`; tests of what needs the service, the proxy or dependencies are in `test_*_attacks.py`.

1. The name says in the third person what it does: it becomes the name of the tests.
2. `python` and `nodejs` are the body of `attack(target)`. It returns its loot, or raises. Around it `attack.py` puts a
   program that prints a token before it begins: an attack that did not run counts as failed, not as fended off.
3. `target` tells where things are: `outside` is a folder of the host with `secret.txt` and `writable.txt`, `script`,
   `output` and `cache` are the attack's own folders, `tcp udp unix abstract datagrams` are servers of the host that
   answer with the secret, `victim_pid` is one of its processes. What else it needs goes into `Attack.target`.
4. `refused` names the errors (of the kernel, or parts of a message) of which one must stop it inside; `"nothing"` means
   that it returns without loot. Any other error fails the test: an attack with a slip in it proves nothing. Where the
   sandbox may end the program instead, `ends` says how: a limit (`memory`, `cpu`, `files`), `wall` for the time, `output`
   for too much of it, `signal 9`, `exit 134`.
5. The same code must work without a sandbox, as the same user, and return loot; with `damages=True` it must also leave
   traces in the playground or at the host's servers. Where that could do harm, `control` replaces parts of the target by
   something that is permitted or small, or `outside="namespaced"` runs it in namespaces of its own, as their root;
   inside, such an attack does nothing, and counts as having got out, where it is root among the mounts of the host.
   Nothing may be able to harm the machine that runs the tests, not even through a hole: aim at what the tests have made,
   and let bombs end at a bound.
6. After each run the test looks at everything that could have been harmed, whatever the attack was: the secret must not
   have been printed, the playground be as it was, no server have been reached, the victim be well, no process of the
   sandbox be there, and the host have no more descriptors, children, mounts and control groups than before.
"""

from __future__ import annotations

from tests.scripts.attacks import on_files, on_kernel, on_network, on_processes, on_resources
from tests.scripts.attacks.attack import Attack

ATTACKS: list[Attack] = [
    *on_files.ATTACKS,
    *on_processes.ATTACKS,
    *on_network.ATTACKS,
    *on_kernel.ATTACKS,
    *on_resources.ATTACKS,
]
