"""Which hosts an allow-list means: exact ones, in whatever spelling DNS would take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.egress import Egress, is_metadata, normal_host, parse_entry

LABELS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(lambda name: not name[-1].isdigit())


def egress(*entries: str) -> Egress:
    return Egress(hosts=frozenset(map(parse_entry, entries)))


@pytest.mark.parametrize(
    ("entry", "scheme", "host", "port", "allowed"),
    [
        ("api.anthropic.com", "https", "api.anthropic.com", 443, True),
        ("api.anthropic.com", "http", "api.anthropic.com", 80, True),
        ("api.anthropic.com", "https", "api.anthropic.com", 8443, False),
        ("api.anthropic.com", "http", "api.anthropic.com", 443, False),
        ("api.openai.com:443", "https", "api.openai.com", 443, True),
        ("api.openai.com:443", "https", "api.openai.com", 80, False),
        ("API.OpenAI.com.", "https", "api.openai.com", 443, True),
        ("api.openai.com", "https", "API.openai.COM.", 443, True),
        ("bücher.example", "https", "xn--bcher-kva.example", 443, True),
        ("xn--bcher-kva.example", "https", "BÜCHER.example", 443, True),
        ("openai.com", "https", "api.openai.com", 443, False),
        ("api.openai.com", "https", "openai.com", 443, False),
        ("api.openai.com", "https", "api.openai.com.evil.test", 443, False),
        ("api.openai.com", "https", "evilapi.openai.com", 443, False),
        ("api.openai.com", "https", "api-openai.com", 443, False),
        ("127.0.0.1:8000", "http", "127.0.0.1", 8000, True),
        ("127.0.0.1:8000", "http", "127.1", 8000, False),
        ("127.0.0.1:8000", "http", "localhost", 8000, False),
        ("[2001:DB8:0::1]:8000", "http", "2001:db8::1", 8000, True),
        ("2001:db8::1", "https", "2001:db8::1", 443, True),
    ],
)
def test_an_entry_allows_its_host_and_port_alone(entry, scheme, host, port, allowed):
    assert egress(entry).allows(scheme, host, port) is allowed


def test_an_empty_list_allows_nothing():
    assert not egress().allows("https", "api.openai.com", 443)


@pytest.mark.parametrize(
    "entry",
    ["", ".", "*", "*.openai.com", "https://api.openai.com", "api.openai.com/v1", "user@host", "host:",
     "host:0", "host:65536", "host:x", "a b", "host:443:1x", "[::1]x", "a..b", "-a.b", "\u0661.0.0.1:٤٤٣"],
)  # fmt: skip
def test_what_is_no_host_is_no_entry(entry):
    with pytest.raises(ValueError, match="write"):
        parse_entry(entry)


@given(NAMES, st.booleans(), st.booleans())
def test_case_and_a_dot_at_the_end_make_no_other_host(name, upper, dotted):
    spelt = (name.upper() if upper else name) + ("." if dotted else "")
    assert normal_host(spelt) == normal_host(name)
    assert egress(spelt).allows("https", name, 443)


@given(NAMES, NAMES)
def test_one_host_is_never_another(one, other):
    assert egress(one).allows("https", other, 443) is (normal_host(one) == normal_host(other))


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("169.254.169.254", True),
        ("169.254.170.2", True),
        ("::ffff:169.254.169.254", True),
        ("fe80::1%eth0", True),
        ("fd00:ec2::254", True),
        ("fd00:ec2::23", True),
        ("fd20:ce::254", True),
        ("fd00:c1::a9fe:a9fe", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("64:ff9b::100.100.100.200", True),
        ("2002:a9fe:a9fe::1", True),
        ("64:ff9b::8.8.8.8", False),
        ("2002:808:808::1", False),
        ("fd00:ec3::254", False),
        ("fd20:ce::253", False),
        ("100.100.100.200", True),
        ("168.63.129.16", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("api.openai.com", False),
    ],
)
def test_addresses_that_hand_out_credentials_are_known(address, found):
    assert is_metadata(address) is found


def test_a_name_may_not_stand_for_a_metadata_address_unless_that_is_allowed_by_itself():
    assert not egress("api.test").allows_address("api.test", "169.254.169.254", "http", 80)
    assert egress("api.test").allows_address("api.test", "10.0.0.1", "http", 80)
    both = egress("metadata.test", "169.254.169.254:80")
    assert both.allows_address("metadata.test", "169.254.169.254", "http", 80)
    assert egress("169.254.169.254").allows_address("169.254.169.254", "169.254.169.254", "http", 80)
