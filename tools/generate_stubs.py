"""Generate the Python stubs of proto/ into the client, or check that the committed ones are fresh.

Runs in `.venv-proto` (see constraints-proto.txt) and is started by `make proto`. The directory below proto/
is the Python package path (proto/modelmeter/v1 -> modelmeter.v1), so the imports that protoc writes need no
rewriting. The google.api and google.rpc protos come from the installed package googleapis-common-protos, and
so do their stubs at run time: a second copy of the same file in one process is a TypeError.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_DIR = ROOT / "proto"
STUB_DIR = ROOT / "client" / "src"

INIT_TEXT = (
    '"""Generated from the protos of `{package}`: messages, enums, service stubs. See `make proto`."""\n'
)


class GenerationError(Exception):
    """The protos could not be compiled; the message holds what to do."""


def proto_files(proto_dir: Path) -> list[str]:
    """Return the proto files below `proto_dir`, relative to it, sorted.

    Raises GenerationError when there are none.
    """
    found = sorted(path.relative_to(proto_dir).as_posix() for path in proto_dir.rglob("*.proto"))
    if not found:
        message = f"no .proto file below {proto_dir}"
        raise GenerationError(message)
    return found


def generate(proto_dir: Path, out_dir: Path) -> None:
    """Compile every proto below `proto_dir` into modules, type stubs and gRPC stubs below `out_dir`.

    Raises GenerationError when protoc refuses the files (it has written the reasons to standard error by
    then) or when grpcio-tools is not installed.
    """
    try:
        from grpc_tools import protoc  # type: ignore[import-not-found]  # only in .venv-proto
    except ImportError as error:
        message = "grpcio-tools is not installed here: run this through `make proto`"
        raise GenerationError(message) from error
    files = proto_files(proto_dir)
    arguments = [
        "protoc",
        f"--proto_path={proto_dir}",
        f"--proto_path={importlib.metadata.distribution('grpcio-tools').locate_file('grpc_tools/_proto')}",
        f"--proto_path={importlib.metadata.distribution('googleapis-common-protos').locate_file('')}",
        f"--python_out={out_dir}",
        f"--grpc_python_out={out_dir}",
        f"--mypy_out=quiet:{out_dir}",
        f"--mypy_grpc_out=quiet:{out_dir}",
        *files,
    ]
    _add_plugins_to_path()
    if protoc.main(arguments) != 0:
        message = "protoc refused the protos"
        raise GenerationError(message)
    _write_package_files(out_dir, files)


def _add_plugins_to_path() -> None:
    # protoc finds protoc-gen-mypy on PATH only, and the environment need not be activated.
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def _write_package_files(out_dir: Path, files: list[str]) -> None:
    for folder in sorted({Path(name).parent for name in files}):
        package = ".".join(folder.parts)
        (out_dir / folder / "__init__.py").write_text(INIT_TEXT.format(package=package), encoding="utf-8")


def install(fresh_dir: Path, stub_dir: Path) -> list[str]:
    """Make the generated folders of `stub_dir` equal to those of `fresh_dir`; return what changed, relative.

    Files that are equal are left alone (their times too), so that a build that looks at times does nothing.
    """
    changed = []
    for name in stale(fresh_dir, stub_dir):
        source, target = fresh_dir / name, stub_dir / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        else:
            target.unlink()
        changed.append(name)
    return changed


def stale(fresh_dir: Path, stub_dir: Path) -> list[str]:
    """Return the files that differ between the two trees, are missing or are left over, relative, sorted."""
    fresh = _contents(fresh_dir, {path.parent.relative_to(fresh_dir) for path in fresh_dir.rglob("*_pb2.py")})
    committed = _contents(stub_dir, {Path(name).parent for name in fresh})
    return sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))


def _contents(root: Path, folders: set[Path]) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in folders
        for path in (root / folder).glob("*.py*")
        if path.suffix in {".py", ".pyi"}
    }


def _difference(name: str, fresh_dir: Path, stub_dir: Path) -> str:
    before, after = (
        path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for path in (stub_dir / name, fresh_dir / name)
    )
    lines = difflib.unified_diff(before, after, f"committed/{name}", f"generated/{name}", lineterm="", n=1)
    return "\n".join(line[:200] for line in list(lines)[:20])


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0, 1 when `--check` found a difference, 2 when the protos do not
    compile."""
    parser = argparse.ArgumentParser(description="Generate the Python stubs of proto/ into client/src.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail when a stub is stale")
    parser.add_argument("--proto-dir", type=Path, default=PROTO_DIR, help="where the protos are (proto)")
    parser.add_argument("--stub-dir", type=Path, default=STUB_DIR, help="what to write (client/src)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        fresh_dir = Path(folder)
        try:
            generate(options.proto_dir.resolve(), fresh_dir)
        except GenerationError as error:
            print(f"generate_stubs: {error}", file=sys.stderr)
            return 2
        if not options.check:
            changed = install(fresh_dir, options.stub_dir)
            print(f"stubs: {len(changed)} file(s) written" if changed else "stubs: already fresh")
            return 0
        differing = stale(fresh_dir, options.stub_dir)
        for name in differing:
            print(f"stale: {name}\n{_difference(name, fresh_dir, options.stub_dir)}", file=sys.stderr)
        print("stubs: stale, run `make proto`" if differing else "stubs: fresh")
        return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
