"""Garbage of a process of `tavern`: large documents are read without a collection of all that there is."""

from __future__ import annotations

import subprocess
import sys

READ = """
import gc, json
from tavern_host.cli.garbage import collect_again, put_off

full = []
gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
put_off()
collect_again()
document = json.loads("[" + ",".join(["[1]"] * 300_000) + "]")
garbage = []
garbage.append(garbage)
del garbage
print(gc.isenabled(), len(full), gc.collect() > 0)
"""


def test_large_documents_cause_no_full_collection() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "True 0 True"
