"""Marks of tests that state what only some systems do."""

import pytest

from tavern_host.common.system import NEEDS_LINUX

on_linux = pytest.mark.skipif(bool(NEEDS_LINUX), reason="it states what Linux does")
