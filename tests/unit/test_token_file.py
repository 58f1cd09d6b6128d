"""The file of tokens: hashes only, replaced as a whole, for its owner alone, changed by several at once."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelmeter_server.core.tokens import (
    TokenRecord,
    TokenState,
    digest_of,
    is_token_of,
    token_id_of,
    token_text,
)
from modelmeter_server.core.windows import LAST_SECOND
from modelmeter_server.drivers.file_watch import FileWatch
from modelmeter_server.identity import token_file
from modelmeter_server.identity.token_file import NoSuchToken, TokenEnded, TokenFile, TokenFileError
from tests.support.identities import age_tokens

TIMES = st.none() | st.integers(0, 2**40)


def record(**fields: Any) -> TokenRecord:
    usual: dict[str, Any] = {"token_id": "a" * 12, "tenant": "t", "sha256": "0" * 64, "created_at": 1}
    return TokenRecord(**usual | fields)


@given(expires=TIMES, revoked=TIMES, now=st.floats(0, 2**40))
def test_a_token_opens_from_its_making_to_its_end_unless_it_is_revoked(expires, revoked, now):
    state = record(expires_at=expires, revoked_at=revoked).state(now)
    assert (state is TokenState.REVOKED) == (revoked is not None)
    if revoked is None:
        assert (state is TokenState.ACTIVE) == (expires is None or now < expires)


@given(st.text())
def test_a_text_is_a_token_only_in_one_form(text):
    found = token_id_of(text)
    assert found is None or text.startswith(f"mm_{found}_")
    assert not is_token_of(record(), text)
    assert not is_token_of(None, text)


@pytest.mark.parametrize("suffix", ["\n", " ", "\x00", "é", "a"])
def test_nothing_can_stand_around_a_token(suffix):
    token = token_text("a" * 12, "B" * 43)
    assert token_id_of(token) == "a" * 12
    assert token_id_of(token + suffix) is None
    assert token_id_of(suffix + token) is None


def test_a_token_is_known_by_its_hash_alone():
    token = token_text("a" * 12, "B" * 43)
    assert is_token_of(record(sha256=digest_of(token)), token)
    assert not is_token_of(record(sha256=digest_of(token)), token_text("a" * 12, "C" + "B" * 42))


def test_the_file_holds_no_token_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "tokens.json"
    os.umask(old := os.umask(0))
    try:
        os.umask(0)
        found, token = TokenFile(path).create("acme", name="ci")
    finally:
        os.umask(old)
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in text
    assert token.split("_")[2] not in text
    assert json.loads(text)["tokens"][0]["sha256"] == digest_of(token) == found.sha256
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tokens.json", "tokens.json.lock"]


def test_tokens_are_made_listed_rotated_expired_and_revoked(tmp_path):
    tokens = TokenFile(tmp_path / "t.json")
    first, one = tokens.create("acme", name="ci")
    second, two, old = tokens.rotate(first.token_id, overlap=60)
    now = time.time()
    assert one != two
    assert (second.tenant, second.name) == ("acme", "ci")
    assert (old.state(now), old.state(now + 61)) == (TokenState.ACTIVE, TokenState.EXPIRED)
    assert tokens.expire(second.token_id, int(now) - 1).state(now) is TokenState.EXPIRED
    assert tokens.revoke(first.token_id).state(now) is TokenState.REVOKED
    again = TokenFile(tmp_path / "t.json")
    assert {each.token_id for each in again.records()} == {first.token_id, second.token_id}


def test_a_rotation_never_lengthens_a_life(tmp_path):
    tokens = TokenFile(tmp_path / "t.json")
    soon = int(time.time()) + 5
    first, _ = tokens.create("acme", expires_at=soon)
    _, _, old = tokens.rotate(first.token_id, overlap=3600)
    assert old.expires_at == soon


DAY = 24 * 60 * 60


@given(
    age=st.integers(0, 400 * DAY),
    left=st.none() | st.integers(60, 400 * DAY) | st.just(LAST_SECOND),
    overlap=st.integers(0, 9 * DAY),
)
@settings(max_examples=40, deadline=None)
def test_a_successor_lives_as_long_as_the_old_token_from_its_making_to_its_end(age, left, overlap):
    with tempfile.TemporaryDirectory() as folder:
        tokens = TokenFile(Path(folder) / "t.json")
        begun = int(time.time())
        end = None if left is None else min(begun + age + left, LAST_SECOND)
        first, _ = tokens.create("acme", expires_at=end)
        age_tokens(tokens.path, age)
        second, _, old = tokens.rotate(first.token_id, overlap=overlap)
        done = int(time.time())
    assert old.expires_at is not None  # as ever: it ends with the overlap
    if end is None:
        assert second.expires_at is None
    else:
        assert second.expires_at is not None
        length = end - first.created_at
        assert min(begun + length, LAST_SECOND) <= second.expires_at <= min(done + length, LAST_SECOND)


def test_a_life_that_was_cut_short_is_what_a_successor_gets_and_a_lifetime_of_its_own_goes_before(tmp_path):
    tokens = TokenFile(tmp_path / "t.json")
    first, _ = tokens.create("acme")
    tokens.expire(first.token_id, first.created_at + DAY)
    second, _, _ = tokens.rotate(first.token_id, overlap=60)
    third, _, _ = tokens.rotate(first.token_id, overlap=60, expires_at=LAST_SECOND)
    assert second.expires_at is not None
    assert 0 <= second.expires_at - first.created_at - DAY <= 5
    assert third.expires_at == LAST_SECOND


def test_what_has_ended_or_never_was_is_left_as_it_is(tmp_path):
    tokens = TokenFile(tmp_path / "t.json")
    made, _ = tokens.create("acme")
    revoked_at = tokens.revoke(made.token_id).revoked_at
    before = (tmp_path / "t.json").read_bytes()
    for change in (tokens.rotate, lambda token_id: tokens.expire(token_id, 2**40)):
        with pytest.raises(TokenEnded):
            change(made.token_id)
    for change in (tokens.rotate, tokens.revoke, lambda token_id: tokens.expire(token_id, 1)):
        with pytest.raises(NoSuchToken):
            change("../../etc/passwd")
    assert (tmp_path / "t.json").read_bytes() == before
    assert tokens.revoke(made.token_id).revoked_at == revoked_at


def test_changes_of_several_at_once_all_count(tmp_path):
    path = tmp_path / "t.json"

    def work() -> None:
        mine = TokenFile(path)
        for _ in range(5):
            mine.create("acme")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(TokenFile(path).records()) == 30


def test_of_two_changes_at_once_the_later_one_is_known_last(tmp_path, monkeypatch):
    """A revocation counts at once, also where another change has just been written by another thread."""
    tokens = TokenFile(tmp_path / "tokens.json")
    ids = [tokens.create("acme")[0].token_id for _ in range(2)]
    second = threading.Thread(target=tokens.revoke, args=(ids[1],))
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 60.0)
    tokens.find(ids[0])  # the next look into the file is a minute away
    changed = FileWatch.changed
    slow = threading.current_thread()

    def changed_slowly(watch: FileWatch) -> bool:
        if threading.current_thread() is slow and second.ident is None:
            second.start()
            second.join(0.3)  # as far as it gets before this thread goes on
        return changed(watch)

    monkeypatch.setattr(FileWatch, "changed", changed_slowly)
    tokens.revoke(ids[0])
    second.join()
    assert [tokens.find(each).state(time.time()) for each in ids] == [TokenState.REVOKED] * 2  # type: ignore[union-attr]


def test_what_was_read_before_a_change_does_not_take_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 0.0)
    tokens = TokenFile(tmp_path / "tokens.json")
    token_id = tokens.create("acme")[0].token_id
    read = token_file._read
    slow = threading.current_thread()

    def read_slowly(path: Path) -> list[TokenRecord]:
        found = read(path)
        if threading.current_thread() is slow:
            change = threading.Thread(target=tokens.revoke, args=(token_id,))
            change.start()
            change.join()
        return found

    monkeypatch.setattr(token_file, "_read", read_slowly)
    tokens.find(token_id)
    monkeypatch.setattr(token_file, "_read", read)
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 60.0)
    assert tokens.find(token_id).state(time.time()) is TokenState.REVOKED  # type: ignore[union-attr]


def test_a_file_that_is_gone_is_not_replaced_by_one_with_a_single_token(tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    kept = tokens.create("acme")[0].token_id
    aside = (tmp_path / "tokens.json").rename(tmp_path / "aside")
    with pytest.raises(TokenFileError, match="is gone"):
        tokens.create("other")
    assert tokens.find(kept) is not None
    aside.rename(tmp_path / "tokens.json")
    tokens.create("other")
    assert len(TokenFile(tmp_path / "tokens.json").records()) == 2


def test_a_change_of_another_process_is_seen_at_the_next_look(tmp_path, monkeypatch):
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 0.0)
    mine, theirs = TokenFile(tmp_path / "t.json"), TokenFile(tmp_path / "t.json")
    made, _ = theirs.create("acme")
    assert mine.find(made.token_id) == made
    theirs.revoke(made.token_id)
    found = mine.find(made.token_id)
    assert found is not None
    assert found.revoked_at is not None


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"tokens": [{"token_id": 1}]}', b'{"version": 2}', b"[" * 9999, None]
)
def test_a_damaged_file_locks_nobody_out_and_is_never_written_over(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 0.0)
    path = tmp_path / "t.json"
    tokens = TokenFile(path)
    made, _ = tokens.create("acme")
    assert tokens.find(made.token_id) == made
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
        with pytest.raises(TokenFileError):
            TokenFile(path).load()
        with pytest.raises(TokenFileError):
            tokens.create("acme")
        assert path.read_bytes() == damage
    assert tokens.find(made.token_id) == made


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    tokens = TokenFile(path)
    tokens.create("acme")
    before = path.read_bytes()

    def broken(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(TokenFileError, match="No space left"):
        tokens.create("acme")
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.json", "t.json.lock"]


def test_a_lock_that_is_a_link_to_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("keep")
    (tmp_path / "t.json.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(TokenFileError, match="cannot change"):
        TokenFile(tmp_path / "t.json").create("acme")
    assert (tmp_path / "victim").read_text() == "keep"


def test_no_two_tokens_are_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    tokens = TokenFile(tmp_path / "t.json")
    made = [tokens.create("acme") for _ in range(50)]
    assert len({found.token_id for found, _ in made}) == len({token for _, token in made}) == 50
