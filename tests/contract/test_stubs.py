"""The committed stubs are what the protos say today."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT
from tools import generate_stubs

GENERATOR = ROOT / ".venv-proto" / "bin" / "python"

pytestmark = pytest.mark.skipif(not GENERATOR.exists(), reason="`make proto` has not set up .venv-proto")


def _generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(GENERATOR), str(ROOT / "tools" / "generate_stubs.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_committed_stubs_are_fresh():
    result = _generate("--check")
    assert (result.returncode, result.stdout) == (0, "stubs: fresh\n"), result.stderr


def test_a_stale_missing_or_left_over_stub_is_named(tmp_path):
    folder = tmp_path / "modelmeter" / "v1"
    shutil.copytree(generate_stubs.STUB_DIR / "modelmeter" / "v1", folder)
    (folder / "usage_pb2.pyi").write_text("stale", encoding="utf-8")
    (folder / "usage_pb2.py").unlink()
    (folder / "gone_pb2.py").write_text("", encoding="utf-8")
    result = _generate("--check", "--stub-dir", str(tmp_path))
    assert result.returncode == 1
    named = [line for line in result.stderr.splitlines() if line.startswith("stale: ")]
    assert named == [
        f"stale: modelmeter/v1/{name}" for name in ("gone_pb2.py", "usage_pb2.py", "usage_pb2.pyi")
    ]


def test_generating_twice_writes_once_and_removes_what_is_left_over(tmp_path):
    assert "file(s) written" in _generate("--stub-dir", str(tmp_path)).stdout
    assert _generate("--stub-dir", str(tmp_path)).stdout == "stubs: already fresh\n"
    left_over = tmp_path / "modelmeter" / "v1" / "gone_pb2.py"
    left_over.write_text("", encoding="utf-8")
    assert _generate("--stub-dir", str(tmp_path)).stdout == "stubs: 1 file(s) written\n"
    assert not left_over.exists()


def test_a_proto_that_does_not_compile_changes_nothing(tmp_path):
    protos, stubs = tmp_path / "proto", tmp_path / "stubs"
    protos.mkdir()
    (protos / "broken.proto").write_text('syntax = "proto3";\nmessage {', encoding="utf-8")
    result = _generate("--proto-dir", str(protos), "--stub-dir", str(stubs))
    assert result.returncode == 2
    assert "broken.proto:2" in result.stderr
    assert not stubs.exists()


def test_a_folder_without_protos_is_an_error(tmp_path: Path):
    with pytest.raises(generate_stubs.GenerationError, match=r"no \.proto file"):
        generate_stubs.proto_files(tmp_path)
