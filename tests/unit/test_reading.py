"""Who makes a provider wait: nobody but readers that are all behind."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from modelmeter_server.engine.audience import Audience
from modelmeter_server.engine.provider_request import ProviderRequest
from modelmeter_server.engine.reading import Reader, Readers, ReaderWatch

BUFFER = 100


class Provider:
    """Stands where a provider request and its call stand."""

    def __init__(self) -> None:
        self.received = 0
        self.call: Any = self
        self.words: list[str] = []

    def pause_reading(self) -> None:
        self.words.append("pause")

    def resume_reading(self) -> None:
        self.words.append("resume")


class House:
    def __init__(self) -> None:
        self.provider = Provider()
        self.audience = Audience()
        self.readers = Readers(cast(ProviderRequest, self.provider), self.audience, BUFFER)

    def add(self) -> Reader:
        reader = Reader()
        self.readers.add(reader)
        return reader

    def come(self, size: int) -> list[str]:
        self.provider.received += size
        self.readers.review()
        return self.provider.words


async def test_the_provider_waits_once_its_reader_is_behind_and_goes_on_when_it_has_read():
    house = House()
    reader = house.add()
    assert house.come(BUFFER) == []
    assert house.come(1) == ["pause"]
    assert house.come(50) == ["pause"]
    house.readers.took(reader)
    assert house.provider.words == ["pause", "resume"]
    assert house.come(BUFFER) == ["pause", "resume"]


async def test_the_fastest_of_several_readers_sets_the_pace():
    house = House()
    slow, fast = house.add(), house.add()
    house.audience.join(lambda: None)
    for _ in range(10):
        assert house.come(BUFFER) == []
        house.readers.took(fast)
    assert house.come(BUFFER + 1) == ["pause"]
    house.readers.took(fast)
    assert house.provider.words == ["pause", "resume"]
    assert slow.fetched == 0


async def test_when_the_fastest_leaves_the_next_sets_the_pace():
    house = House()
    house.add()
    fast = house.add()
    house.audience.join(lambda: None)
    house.come(BUFFER)
    house.readers.took(fast)
    assert house.come(1) == []
    house.readers.remove(fast)
    house.audience.leave(lambda: None)
    house.readers.review()
    assert house.provider.words == ["pause"]


async def test_who_waits_for_the_whole_answer_is_never_behind():
    house = House()
    house.add()
    assert house.come(BUFFER + 1) == ["pause"]
    house.audience.join(lambda: None)
    house.readers.review()
    assert house.provider.words == ["pause", "resume"]
    assert house.come(10 * BUFFER) == ["pause", "resume"]


async def test_what_nobody_reads_is_read_on_for_its_bill():
    house = House()
    reader = house.add()
    house.come(BUFFER + 1)
    house.readers.remove(reader)
    assert house.provider.words == ["pause", "resume"]
    assert house.come(10 * BUFFER) == ["pause", "resume"]


async def test_a_driver_that_cannot_wait_is_not_asked_to():
    house = House()
    house.provider.call = object()
    house.add()
    assert house.come(10 * BUFFER) == []
    assert not house.readers.is_paused


async def test_a_watch_tells_of_a_message_that_nobody_takes_and_of_no_pause_between_messages():
    slow = asyncio.Event()
    watch = ReaderWatch(0.02, slow.set)
    watch.begin()
    watch.end()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(slow.wait(), 0.1)
    watch.begin()
    await asyncio.wait_for(slow.wait(), 5)
    watch.close()


async def test_a_watch_of_unbounded_patience_never_tells():
    watch = ReaderWatch(float("inf"), pytest.fail)
    watch.begin()
    watch.close()
