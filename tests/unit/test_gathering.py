"""How long a batch of the ledger waits for more commands."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.journal import CallKey
from modelmeter_server.ledger.gathering import DENSE, LEAST, MOST, Gathering

ONE, OTHER = CallKey("default", "one"), CallKey("default", "other")


def dense() -> Gathering:
    """Return one that has learned that commands are dense."""
    gathering = Gathering()
    for _ in range(20):
        gathering.wrote(DENSE)
    return gathering


async def test_a_batch_waits_for_nobody_as_long_as_no_call_is_under_way():
    waiting = asyncio.ensure_future(dense().wait())
    await asyncio.sleep(0)
    assert waiting.done()


async def test_a_call_that_is_alone_is_never_made_to_wait():
    gathering = Gathering()
    gathering.admitted(ONE)
    for _ in range(10):
        gathering.wrote(DENSE - 1)
    waiting = asyncio.ensure_future(gathering.wait())
    await asyncio.sleep(0)
    assert waiting.done()


@pytest.mark.parametrize("last", [Gathering.asked, Gathering.ended])
async def test_the_wait_ends_with_the_word_of_the_last_call_that_was_waited_for(last):
    gathering = dense()
    gathering.admitted(ONE)
    gathering.admitted(OTHER)
    gathering.asked(ONE)
    waiting = asyncio.ensure_future(gathering.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    last(gathering, OTHER)
    await asyncio.sleep(0)
    assert waiting.done()


async def test_a_call_that_has_its_answer_is_waited_for_again():
    gathering = dense()
    gathering.admitted(ONE)
    gathering.asked(ONE)
    gathering.answered(ONE)
    waiting = asyncio.ensure_future(gathering.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    await waiting


async def test_an_answer_after_the_end_brings_no_call_back():
    gathering = dense()
    gathering.admitted(ONE)
    gathering.ended(ONE)
    gathering.answered(ONE)
    waiting = asyncio.ensure_future(gathering.wait())
    await asyncio.sleep(0)
    assert waiting.done()


@given(st.lists(st.integers(1, 256)))
def test_the_wait_is_bounded_and_ends_where_commands_are_not_dense(sizes):
    gathering = Gathering()
    for size in sizes:
        gathering.wrote(size)
        assert gathering.seconds == 0 or LEAST / 2 <= gathering.seconds <= MOST
    for _ in range(10):
        gathering.wrote(1)
    assert gathering.seconds == 0
