"""The system tools on a machine that has no data about time zones."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_DATA = """
import sys, zoneinfo
sys.modules["tzdata"] = None
zoneinfo.reset_tzpath([])
from tavern_tools.builtin.timezones import timezone_like, timezone_of
print(timezone_of("UTC")[1], timezone_of("+08:00")[1])
try:
    timezone_of("Asia/Tokyo") or timezone_like("Asia/Tokyo")
except Exception as error:
    print(error)
"""


def test_offsets_work_without_data_about_zones() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DATA], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "UTC +08:00",
        '"Asia/Tokyo" is not known as a time zone; this machine has no data about time zones: '
        "install the Python package tzdata, or write +08:00",
    ]
