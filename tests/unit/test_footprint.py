"""The yardstick of the tests that bound memory and time."""

from __future__ import annotations

import time

from tests.support.footprint import MIB, footprint


def test_memory_counts_at_its_peak_although_it_is_given_back():
    with footprint() as used:
        # Far more than is waited for: what other tests left behind may be given back meanwhile.
        block = b"x" * (128 * MIB)
        while used.mebibytes < 48:  # until the thread that looks has had its turn
            time.sleep(0.001)
        del block
    assert 48 < used.mebibytes < 192


def test_work_takes_time_and_waiting_takes_none():
    with footprint() as waited:
        time.sleep(0.1)
    with footprint() as worked:
        sum(range(3_000_000))
    assert waited.seconds < 0.05 < 10 * worked.seconds
