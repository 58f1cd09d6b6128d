"""What goes to a collector goes there straight: a proxy of the environment is none that the deployment has allowed."""

from __future__ import annotations

import asyncio

import modelmeter
from modelmeter_server.app import App
from modelmeter_server.config import load
from tests.support.collector import collecting

VARIABLES = ("grpc_proxy", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy")


async def test_a_proxy_of_the_environment_sees_nothing_of_what_is_exported(tmp_path, monkeypatch):
    asked = []

    def tell(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer.get_extra_info("peername"))
        writer.close()

    async with collecting() as collector, await asyncio.start_server(tell, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("no_grpc_proxy", raising=False)
        file = tmp_path / "m.toml"
        file.write_text(
            f'[server]\nlisten = "unix:{tmp_path}/s"\n[ledger]\nurl = "none"\n'
            '[providers.p]\nkind = "replay"\nallow_direct_models = true\n'
            f'[egress]\nallow = ["{collector.address}"]\n'
            f'[telemetry.otlp]\nendpoint = "http://{collector.address}"\ninsecure = true\n'
        )
        app = App(load(file, {}))
        (address,) = await app.start()
        async with modelmeter.AsyncClient(address) as client:
            await client.complete("p/answer", "Hi")
        await app.stop(0)
    assert collector.metric_names()
    assert collector.spans()
    assert asked == []
