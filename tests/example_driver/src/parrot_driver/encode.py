"""From a request to the body of `POST {base}/v1/say`. Pure."""

from __future__ import annotations

from modelmeter_server.drivers.plugin import (
    Capabilities,
    CompletionRequest,
    ModelSpec,
    PreparedRequest,
    RequestRefused,
    capability_violations,
    finished,
    refused,
)

CAPABILITIES = Capabilities(schema_modes=(), tools=False, sampling=("seed",))


def encode(request: CompletionRequest, model: ModelSpec, *, voice: str) -> PreparedRequest:
    """Turn a checked request into the provider's. Raises RequestRefused for what it cannot do."""
    mode = request.schema_mode or model.schema_mode
    if mistakes := list(capability_violations(request, CAPABILITIES, mode)):
        raise RequestRefused(*mistakes)
    if request.text is None:
        prompt = "messages" if request.messages is not None else "native_json"
        raise refused(prompt, "this provider takes one text: send it as `text`")
    if request.system:
        field = "system"
        raise refused(field, "this provider takes no instructions: leave it out")
    body = {
        "bird": model.provider_model,
        "words": [{"say": request.text}],
        "voice": voice,
        "most": request.max_output_tokens or model.max_output_tokens,
        "stream": not model.buffered,
        **({} if request.seed is None else {"seed": request.seed}),
    }
    return PreparedRequest(target="/v1/say", body=finished(body, request, model, turns="words"))
