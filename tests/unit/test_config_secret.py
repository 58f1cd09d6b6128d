"""A secret shows nowhere unless it is revealed."""

from __future__ import annotations

import copy
import json
import pickle
import traceback

import msgspec
import pytest

from modelmeter_server.config import KeySettings, ProviderSettings, Secret

KEY = "sk-do-not-show"


def test_a_secret_is_given_out_by_reveal_alone():
    assert Secret(KEY).reveal() == KEY


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r:>40}".format, lambda s: f"{[s]}"])
def test_no_way_of_printing_shows_a_secret(show):
    assert KEY not in show(Secret(KEY))


def test_the_settings_that_hold_a_secret_print_without_it():
    provider = ProviderSettings(
        name="p",
        kind="anthropic",
        keys=(KeySettings(value=Secret(KEY), command=("p", KEY)),),
        proxy=Secret(KEY),
    )
    assert KEY not in repr(provider)


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps, msgspec.json.encode])
def test_a_secret_is_neither_pickled_nor_copied_nor_written_as_json(leak):
    with pytest.raises(TypeError) as caught:
        leak(Secret(KEY))
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_secret_has_no_attributes_to_list():
    assert not hasattr(Secret(KEY), "__dict__")


def test_secrets_are_equal_when_their_texts_are():
    assert Secret(KEY) == Secret(KEY)
    assert hash(Secret(KEY)) == hash(Secret(KEY))
    assert Secret(KEY) != Secret("another")
    assert Secret(KEY) != KEY
