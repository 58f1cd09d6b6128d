"""README.md: its table of errors is the server's, and what it says of the repository is so."""

from __future__ import annotations

import grpc
import pytest

from modelmeter.v1 import model_service_pb2
from modelmeter_server.core.errors import TABLE, Failure
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.provider_errors import failure_from_http
from tests.support import ROOT
from tests.support.markdown import code_words, links, section, table

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = {code_words(row["Kind"])[0]: row for row in table(section(TEXT, "Errors"))}
LIMITS = section(TEXT, "What this version does not do")


def test_every_kind_is_in_the_table():
    assert list(ROWS) == [kind.name for kind in Kind]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_the_servers_table_says(name):
    row, ours = TABLE[Kind(name)], ROWS[name]
    assert ours["Meaning"] == row.meaning
    assert ours["Disposition"] == (row.disposition.name if row.disposition else "as told")
    codes = ours["Code"].split(", ")
    assert codes[0] == row.code.name
    assert not [code for code in codes if not hasattr(grpc.StatusCode, code)]
    assert (ours["Retryable"] == "no") is not row.retryable


def answered(status: int) -> Failure:
    """Return what an error answer without headers or a body means."""

    def header(_name: str) -> None:
        return None

    return failure_from_http(status, header, b"", scrub=str)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 413, 422, 451])
def test_the_codes_of_a_refusal_are_all_there(status):
    refused = answered(status)
    assert refused.kind is Kind.REFUSED
    assert refused.code.name in ROWS["REFUSED"]["Code"].split(", ")


def test_an_error_that_the_provider_reported_is_worth_repeating():
    assert ROWS["UNAVAILABLE"]["Retryable"] == "if it answered"
    assert answered(503).retryable


def test_the_methods_are_those_that_are_told_of():
    service = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]
    assert set(service.methods_by_name) == {
        "Complete",
        "StreamComplete",
        "CountTokens",
        "Embed",
        "ListModels",
        "GetModel",
        "Session",
    }


def test_every_folder_of_the_repository_is_listed():
    listed = {link.split("/")[0] for link in links(section(TEXT, "In this repository"))}
    folders = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and path.name[0] not in "._" and not path.name.endswith(".egg-info")
    }
    assert not folders - listed - {"build", "dist", "htmlcov", "deploy"}
