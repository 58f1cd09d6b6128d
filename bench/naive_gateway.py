"""The gateway that most people would write first: httpx, httpx-sse, json, dictionaries.

Run as `python -m bench.naive_gateway PROVIDER_URL`: prints the port, serves `Complete` until its standard input ends.
It is the measure of the benchmark, so it is written plainly and not badly: one client, keep-alive, no limit on
connections.
"""

from __future__ import annotations

import asyncio
import json
import sys

import grpc.aio
import httpx
import httpx_sse

from modelmeter.v1 import model_service_pb2 as service_pb2
from modelmeter.v1 import model_service_pb2_grpc as service_grpc


class NaiveModelService(service_grpc.ModelServiceServicer):
    """Serve `Complete` from one Anthropic-shaped provider."""

    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(base_url=url, limits=limits, timeout=60, trust_env=False)

    async def Complete(
        self, request: service_pb2.CompleteRequest, context: object
    ) -> service_pb2.CompleteResponse:
        """Ask the provider and gather its events."""
        body = {
            "model": request.model,
            "max_tokens": 1024,
            "stream": True,
            "messages": [{"role": "user", "content": request.text}],
        }
        text: list[str] = []
        usage: dict[str, int] = {}
        response = service_pb2.CompleteResponse()
        async with httpx_sse.aconnect_sse(self._client, "POST", "/v1/messages", json=body) as source:
            async for event in source.aiter_sse():
                data = json.loads(event.data)
                match data["type"]:
                    case "message_start":
                        usage.update(data["message"]["usage"])
                    case "content_block_delta":
                        text.append(data["delta"]["text"])
                    case "message_delta":
                        usage.update(data["usage"])
                        response.completion.stop_reason = data["delta"]["stop_reason"]
        response.completion.text = "".join(text)
        response.completion.usage.input_tokens = usage["input_tokens"]
        response.completion.usage.output_tokens = usage["output_tokens"]
        return response


async def _serve(url: str) -> None:
    server = grpc.aio.server()
    service_grpc.add_ModelServiceServicer_to_server(
        NaiveModelService(url),  # type: ignore[abstract]  # the one RPC that is measured
        server,
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
