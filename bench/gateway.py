"""This service as it is served, in front of one provider that speaks every wire format.

Run as `python -m bench.gateway PROVIDER_URL [LEDGER_URL [DURABILITY]]`: prints the port, serves until its standard
input ends. No ledger is kept unless one is named.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from bench.answers import KINDS
from modelmeter_server import serving
from modelmeter_server.config import LedgerSettings, ProviderSettings, ServerSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence


def _announce(addresses: Sequence[str]) -> None:
    print(addresses[0].rpartition(":")[2], flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(url: str, ledger: str = "none", durability: str = "process") -> None:
    """Serve `<kind>/<any model>` until the standard input ends."""
    settings = Settings(
        server=ServerSettings(listen=("127.0.0.1:0",)),
        ledger=LedgerSettings(url=ledger, durability=durability),
        providers=tuple(
            ProviderSettings(name=kind, kind=kind, base_url=url, allow_direct_models=True) for kind in KINDS
        ),
    )
    threading.Thread(target=_end_with_input, daemon=True).start()
    serving.run(settings, _announce)


if __name__ == "__main__":
    main(*sys.argv[1:4])
