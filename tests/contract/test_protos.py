"""The protos keep buf's rules, and the check that guards the wire sees what would break a caller."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import protocheck


@pytest.fixture
def proto_dir(tmp_path) -> Path:
    """Return a copy of the protos that a test may spoil."""
    copy = tmp_path / "proto"
    shutil.copytree(protocheck.PROTO_DIR, copy)
    return copy


@pytest.fixture(scope="session")
def today(tmp_path_factory) -> Path:
    """Return an image of the protos as they are, to compare spoiled copies with."""
    image = tmp_path_factory.mktemp("image") / "today.binpb"
    result = protocheck.build(protocheck.PROTO_DIR, image)
    assert result.returncode == 0, result.stderr
    return image


def _replace(proto_dir: Path, name: str, old: str, new: str) -> None:
    file = proto_dir / "modelmeter" / "v1" / name
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times: renew this test"
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_the_protos_pass_the_lint_rules():
    result = protocheck.lint()
    assert (result.returncode, result.stdout) == (0, "")


def test_the_protos_are_laid_out_as_buf_does():
    result = protocheck.layout()
    assert (result.returncode, result.stdout) == (0, "")


def test_the_protos_keep_the_wire_of_the_last_release():
    result = protocheck.breaking()
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("usage.proto", "reasoning_tokens = 7 ", "reasoning_tokens = 77 ", 'field "7"'),
        ("error.proto", "  bool retryable = 14;\n", "", 'field "14"'),
        ("error.proto", "STAGE_WRITTEN = 3;", "STAGE_SENT = 3;", "STAGE_WRITTEN"),
        ("error.proto", "  CAUSE_LIMIT = 8;\n", "", 'enum value "8"'),
        ("usage.proto", "optional int64 reasoning_tokens", "optional double reasoning_tokens", "type"),
        ("usage.proto", "optional int64 reasoning_tokens", "int64 reasoning_tokens", "cardinality"),
        ("completion.proto", "string stop_reason = 7;", "string halt_reason = 7;", "stop_reason"),
        (
            "model_service.proto",
            "returns (stream StreamCompleteResponse)",
            "returns (StreamCompleteResponse)",
            "stream",
        ),
    ],
    ids=[
        "field number changed",
        "field removed",
        "enum value renamed",
        "enum value removed",
        "field type changed",
        "presence dropped",
        "field renamed",
        "stream made unary",
    ],
)
def test_a_change_that_breaks_callers_is_caught(proto_dir, today, name, old, new, complaint):
    _replace(proto_dir, name, old, new)
    result = protocheck.breaking(proto_dir, today)
    assert result.returncode != 0
    assert complaint in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (
            "usage.proto",
            "\nenum Certainty {",
            "\nmessage Extra {\n  // Anything.\n  string word = 1;\n}\n\nenum Certainty {",
        ),
        ("error.proto", "CAUSE_BUG = 9;", "CAUSE_BUG = 9;\n  // Another.\n  CAUSE_OTHER = 10;"),
        (
            "usage.proto",
            "  optional int64 reasoning_tokens = 7 ",
            "  // Another.\n  optional int64 other = 900;\n  optional int64 reasoning_tokens = 7 ",
        ),
    ],
    ids=["message added", "enum value added", "field added"],
)
def test_an_additive_change_passes(proto_dir, today, name, old, new):
    _replace(proto_dir, name, old, new)
    result = protocheck.breaking(proto_dir, today)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("usage.proto", "  // ISO 4217 code, such as `USD`.\n", "", "comment"),
        ("error.proto", "CAUSE_BUG = 9;", "BUG = 9;", "prefixed"),
        ("error.proto", "CAUSE_UNSPECIFIED = 0;", "CAUSE_ZERO = 0;", "_UNSPECIFIED"),
    ],
    ids=["no comment", "enum value without prefix", "zero that says something"],
)
def test_an_undocumented_or_misnamed_element_is_caught(proto_dir, name, old, new, complaint):
    _replace(proto_dir, name, old, new)
    result = protocheck.lint(proto_dir)
    assert result.returncode != 0
    assert complaint in result.stdout


def test_a_workspace_refuses_a_configuration_that_it_cannot_extend(proto_dir):
    config = proto_dir / "buf.yaml"
    config.write_text(
        config.read_text(encoding="utf-8").replace("  - path: .", "  - path: elsewhere"), encoding="utf-8"
    )
    with pytest.raises(ValueError, match="expected one line"), protocheck.workspace(proto_dir):
        pass
