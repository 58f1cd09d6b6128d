"""Lint, format and compare the protos with buf, without a network.

buf resolves imports inside a workspace only, and the google.api and google.rpc protos are not ours to commit.
So each run lays out a temporary workspace: a copy of the protos under their own name (messages then name
`proto/...`, as in the repository) beside a copy of the protos that the installed package
googleapis-common-protos ships.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
PROTO_DIR = ROOT / "proto"
BASELINE = PROTO_DIR / "baseline.binpb"

_OWN_MODULE = "  - path: ."
_WORKSPACE_MODULES = """\
  - path: proto
  - path: googleapis
    lint:
      ignore: [googleapis]
    breaking:
      ignore: [googleapis]"""


@contextmanager
def workspace(proto_dir: Path = PROTO_DIR) -> Iterator[Path]:
    """Lay out a buf workspace with the protos of `proto_dir` as `proto` and yield its folder.

    Raises ValueError when the buf.yaml of `proto_dir` does not hold the one module line that is replaced
    here.
    """
    config = (proto_dir / "buf.yaml").read_text(encoding="utf-8")
    if config.splitlines().count(_OWN_MODULE) != 1:
        message = f"{proto_dir / 'buf.yaml'}: expected one line {_OWN_MODULE!r}"
        raise ValueError(message)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "buf.yaml").write_text(config.replace(_OWN_MODULE, _WORKSPACE_MODULES), encoding="utf-8")
        shutil.copytree(proto_dir, root / "proto", ignore=shutil.ignore_patterns("buf.yaml", "*.binpb"))
        _copy_googleapis(root / "googleapis")
        yield root


def _copy_googleapis(target: Path) -> None:
    distribution = importlib.metadata.distribution("googleapis-common-protos")
    for file in distribution.files or ():
        # Only what our protos may import; the rest of the package would have to be compiled on every run.
        if file.suffix == ".proto" and file.parts[:2] in {("google", "api"), ("google", "rpc")}:
            destination = target / file
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(distribution.locate_file(file)), destination)


def buf(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the buf binary of this environment (package buf-bin) and return how it ended, output captured."""
    executable = Path(sysconfig.get_path("scripts")) / "buf"
    return subprocess.run([str(executable), *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def lint(proto_dir: Path = PROTO_DIR) -> subprocess.CompletedProcess[str]:
    """Apply the lint rules of buf.yaml to the protos of `proto_dir`."""
    with workspace(proto_dir) as root:
        return buf("lint", "proto", cwd=root)


def breaking(proto_dir: Path = PROTO_DIR, baseline: Path = BASELINE) -> subprocess.CompletedProcess[str]:
    """Compare the protos of `proto_dir` with the image `baseline` by the breaking rules of buf.yaml."""
    with workspace(proto_dir) as root:
        return buf("breaking", "proto", "--against", str(baseline), "--exclude-imports", cwd=root)


def build(proto_dir: Path, image: Path) -> subprocess.CompletedProcess[str]:
    """Compile the protos of `proto_dir` with their imports, without comments, into the file `image`."""
    with workspace(proto_dir) as root:
        return buf("build", "proto", "--exclude-source-info", "--output", str(image), cwd=root)


def layout(proto_dir: Path = PROTO_DIR, *, write: bool = False) -> subprocess.CompletedProcess[str]:
    """Compare the layout of the protos with buf's own, or rewrite them in it."""
    # Formatting resolves no import, so it runs in place.
    mode = ["--write"] if write else ["--diff", "--exit-code"]
    return buf("format", *mode, ".", cwd=proto_dir)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return buf's exit code."""
    parser = argparse.ArgumentParser(description="Check the protos with buf.")
    parser.add_argument("command", choices=["lint", "format", "breaking", "baseline"])
    parser.add_argument("--write", action="store_true", help="format: rewrite the files")
    options = parser.parse_args(argv)
    if options.command == "breaking" and not BASELINE.exists():
        print("protocheck: proto/baseline.binpb is missing: `make baseline`", file=sys.stderr)
        return 1
    commands: dict[str, Callable[[], subprocess.CompletedProcess[str]]] = {
        "lint": lint,
        "format": lambda: layout(write=options.write),
        "breaking": breaking,
        "baseline": lambda: build(PROTO_DIR, BASELINE),
    }
    result = commands[options.command]()
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    print(f"buf {options.command}: {'ok' if result.returncode == 0 else 'failed'}")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
