"""Which hosts a pattern allows, and which addresses are never reached by a name."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.allowlist import (
    AllowList,
    Scheme,
    Target,
    covers,
    is_special,
    parse_pattern,
    parse_target,
)


def allows(patterns: list[str], target: str, scheme: Scheme = "connect") -> bool:
    parsed = parse_target(target, 443 if scheme == "connect" else 80)
    return isinstance(parsed, Target) and AllowList(patterns).allows(parsed, scheme)


PATTERNS = {
    "example.com": (
        "connect|example.com:443 connect|EXAMPLE.com.:443 http|example.com:80",
        "connect|example.com:80 http|example.com:443 connect|a.example.com:443 connect|example.com.evil.org:443",
    ),
    "example.com:8443": ("connect|example.com:8443 http|example.com:8443", "connect|example.com:443"),
    "*.example.com": ("connect|a.b.example.com:443", "connect|example.com:443 connect|evilexample.com:443"),
    "*.example.com:8080": ("http|a.example.com:8080", "http|a.example.com:80"),
    "*": ("connect|anything.org:443", "connect|anything.org:8443 connect|8.8.8.8:443 connect|[2606:4700::1111]:443"),
    "127.0.0.1:8080": ("http|127.0.0.1:8080", "http|127.0.0.1:8081 http|[::ffff:127.0.0.1]:8080"),
    "[::1]:8080": ("http|[0:0:0:0:0:0:0:1]:8080", "http|[::1]:8081"),
    "münchen.example": ("connect|xn--mnchen-3ya.example:443", ""),
    "xn--mnchen-3ya.example": ("connect|münchen.example:443", ""),
}
"""What each pattern allows, and what it does not."""


def test_a_pattern_allows_what_it_names_and_nothing_else() -> None:
    with Failures() as failures:
        for pattern, (allowed, other) in PATTERNS.items():
            for expected, targets in ((True, allowed), (False, other)):
                for scheme, target in (word.split("|") for word in targets.split()):
                    with failures.row((pattern, scheme, target)):
                        assert allows([pattern], target, scheme) is expected  # type: ignore[arg-type]


TWO_WAYS = """
    127.1:80 2130706433:80 0x7f000001:80 0177.0.0.1:80 127.0.0.01:80 1.2.3.4.5:80 a.0x7f:80 [::1%25lo]:80 [::1%lo]:80
    [::1:80 ::1:80 a/b:80 a@b:80 a:0 a:65536 a: :80 a:８０ a..b:80 -a.example:80 a%2eb:80 [127.0.0.1]:80 [::1]x:80
"""


def test_a_target_that_could_be_read_in_two_ways_is_refused() -> None:
    with Failures() as failures:
        for text in [*TWO_WAYS.split(), "a b:80", "a\n:80", "a" * 64 + ".example:80"]:
            with failures.row(text):
                assert isinstance(parse_target(text, 80), str)


NO_PATTERNS = "*. *.* a.* *.127.0.0.1 http://example.com example.com/ user@example.com a:* *:0 [::1 **"


def test_what_is_no_pattern_is_said_to_be_none() -> None:
    said = "is no host that can be allowed: .*write `host`, `host:port`"
    with Failures() as failures:
        for pattern in [*NO_PATTERNS.split(), "", "a b", "a" * 400, "\x00"]:
            with failures.row(pattern), pytest.raises(InvalidInput, match=said):
                AllowList([pattern])


SPECIAL = """
    0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 127.255.255.254 169.254.169.254 172.31.0.1 192.0.0.8 192.0.2.1
    192.88.99.1 192.168.1.1 198.19.0.1 198.51.100.7 203.0.113.5 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1
    ::ffff:8.8.8.8 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 100::1 64:ff9b:1::1 2001::1 2001:db8::1
    2002:7f00:1:: 3fff::1 fc00::1 fd12::1 fe80::1 fec0::1 ff02::1 5f00::1
"""


PUBLIC = "1.1.1.1 8.8.8.8 172.32.0.1 2606:4700::1111 2a00::1 64:ff9b::808:808"


def test_addresses_off_the_public_internet_are_special() -> None:
    assert [address for address in SPECIAL.split() if not is_special(ip_address(address))] == []
    assert [address for address in PUBLIC.split() if is_special(ip_address(address))] == []


def test_a_name_may_lead_to_a_special_address_only_if_that_is_listed_with_its_port() -> None:
    listed = AllowList(["api.example.com:8080", "10.0.0.5:8080", "*:8081"])
    found = [ip_address(one) for one in ("10.0.0.5", "10.0.0.6", "127.0.0.1", "::1", "1.1.1.1")]

    def usable(host: str, port: int) -> str:
        return " ".join(map(str, listed.usable(Target(host=host, port=port), found, "http")))

    assert usable("api.example.com", 8080) == "10.0.0.5 1.1.1.1"
    assert usable("api.example.com", 8081) == usable("localhost", 8081) == "1.1.1.1"


COVERED = {
    "example.com": "example.com",
    "*.example.com": "a.example.com *.a.example.com *.example.com",
    "*": "*.example.com",
    "*:8443": "example.com:8443",
    "10.0.0.1": "10.0.0.1",
}
NOT_COVERED = {
    "example.com": "example.com:443",
    "*.example.com": "example.com *",
    "a.example.com": "*.example.com",
    "*": "example.com:8443 10.0.0.1",
}


def test_one_pattern_covers_another_where_all_of_that_is_allowed() -> None:
    for expected, table in ((True, COVERED), (False, NOT_COVERED)):
        rows = [(wide, narrow) for wide, texts in table.items() for narrow in texts.split()]
        assert [row for row in rows if covers(*row) is not expected] == []


LABEL = st.sampled_from(["a", "b", "a-b", "x1", "example", "com"])
PATTERN = st.builds(
    lambda star, labels, port: ("*." if star else "") + ".".join(labels) + (f":{port}" if port else ""),
    st.booleans(),
    st.lists(LABEL, min_size=1, max_size=3),
    st.sampled_from([None, 80, 443, 8080]),
)


@given(
    wide=PATTERN, narrow=PATTERN, name=st.lists(LABEL, min_size=1, max_size=4), port=st.sampled_from([80, 443, 8080])
)
def test_what_a_covered_pattern_allows_the_covering_one_allows_too(
    wide: str, narrow: str, name: list[str], port: int
) -> None:
    target = f"{'.'.join(name)}.{narrow.removeprefix('*.').partition(':')[0]}:{port}"
    if covers(wide, narrow) and allows([narrow], target):
        assert allows([wide], target)


@given(text=st.text(max_size=60))
def test_any_text_is_a_target_or_said_not_to_be_one(text: str) -> None:
    parsed = parse_target(text, 80)

    assert isinstance(parsed, str) or parse_target(str(parsed)) == parsed


@given(text=PATTERN)
def test_a_pattern_reads_as_it_is_written(text: str) -> None:
    assert str(parse_pattern(text)) == text
