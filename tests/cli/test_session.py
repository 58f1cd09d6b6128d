"""`modelmeter session` as a process: lines in, answers out, a bill after each."""

from __future__ import annotations

from tests.support.command_line import run


async def test_each_line_is_a_turn_and_each_turn_has_its_bill(replay_address):
    lines = b"Hello\n\n/new\nAgain\nAnd again\n/quit\nnever said\n"
    result = await run("session", "replay/answer", "--address", replay_address, stdin=lines)
    assert result.code == 0
    assert [line.split('"')[1] for line in result.out.splitlines()] == ["Hello", "Again", "And again"]
    bills = result.err.split("answered\n")
    assert len(bills) == 4
    assert "transport  EMULATED" in bills[0]
    assert "turns      3, 3 completed" in bills[-1]
    # The third turn carries the second one, the second nothing of the first.
    inputs = [int(bill.split("input ")[1].split(",")[0]) for bill in bills[1:]]
    assert inputs[1] < inputs[2]


async def test_a_turn_that_fails_is_told_and_decides_the_exit_code(replay_address):
    result = await run("session", "replay/overloaded", "--address", replay_address, stdin=b"a\nb\n")
    assert result.code == 4
    assert result.out == ""
    assert "turns      2, 0 completed" in result.err


async def test_a_session_that_cannot_be_opened_is_told_like_a_call(replay_address):
    result = await run("session", "nobody", "--address", replay_address, stdin=b"a\n")
    assert (result.code, result.out) == (3, "")
    assert "serves no such model" in result.err


async def test_a_turn_says_how_confidential_it_is(replay_address):
    """A model that callers ask for directly may see what is public, and nothing else."""
    options = ("--address", replay_address, "--sensitivity", "internal")
    result = await run("session", "replay/answer", *options, stdin=b"a\n")
    assert (result.code, result.out) == (3, "")
    assert "INTERNAL" in result.err
