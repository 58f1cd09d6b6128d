"""What the official SDKs say a request looks like: their own types judge a body, strictly and to the last member."""

from __future__ import annotations

import base64
import functools
import gc
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from anthropic.types.message_create_params import MessageCreateParams
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import SchemaValidator

# The SDKs are a quarter of a million objects that never die, in every process that collects tests: walked by each full
# collection, they would slow down all others.
gc.freeze()

_LOOSE = ("typed-dict", "model-fields", "dataclass-args")


def _tightened(node: Any) -> Any:
    """Return a schema of pydantic's core that takes no unknown member and reads every list to its end.

    The SDKs say `Iterable`, which pydantic reads only when somebody iterates: nothing in such a list would be judged.
    """
    if isinstance(node, dict):
        kept = {
            name: each if name in ("cls", "metadata", "config") else _tightened(each)
            for name, each in node.items()
        }
        if kept.get("type") == "model":
            # Of a class that was used before, pydantic would take the validator that it has, and not this schema.
            kept = {**kept["schema"], **({"ref": kept["ref"]} if "ref" in kept else {})}
        if kept.get("type") == "generator":
            kept["type"] = "list"
        return {**kept, "extra_behavior": "forbid"} if kept.get("type") in _LOOSE else kept
    if isinstance(node, list | tuple):
        return type(node)(map(_tightened, node))
    return node


@functools.cache
def _validator(params: Any) -> SchemaValidator:
    # In a list, because a TypedDict by itself takes no configuration; files among the types ask for one.
    adapter: TypeAdapter[Any] = TypeAdapter(list[params], config=ConfigDict(arbitrary_types_allowed=True))
    return SchemaValidator(_tightened(adapter.core_schema))


def _typed(params: Any) -> Callable[[str, bytes], None]:
    def check(_target: str, body: bytes) -> None:
        # Both unions of parameters differ in `stream` alone: judged against the one, the complaints are readable.
        chosen = params.__args__[bool(json.loads(body)["stream"])]
        _validator(chosen).validate_json(b"[%b]" % body, strict=True)

    return check


# Gemini: the types of the REST body, by their names in JSON

_MEMBERS: dict[str, tuple[type[BaseModel], bool]] = {
    "contents": (google.Content, True),
    "systemInstruction": (google.Content, False),
    "tools": (google.Tool, True),
    "toolConfig": (google.ToolConfig, False),
    "generationConfig": (google.GenerationConfig, False),
    "safetySettings": (google.SafetySetting, True),
}
_BARE = {"cachedContent": str, "serviceTier": google.ServiceTier, "labels": dict[str, str], "store": bool}
"""Members of the body that are no objects."""


def _check_gemini(_target: str, body: bytes) -> None:
    for name, value in json.loads(body).items():
        if name in _BARE:
            _validator(_BARE[name]).validate_json(json.dumps([value]), strict=True)
            continue
        if name not in _MEMBERS:
            message = f"the body has no member {name}"
            raise ValueError(message)
        model, is_list = _MEMBERS[name]
        for each in value if is_list else [value]:
            # Enums take unknown words with a warning, which is an error here.
            model.model_validate(each, by_alias=True, by_name=False)


# Bedrock: botocore's own model of the service


@functools.cache
def bedrock_service() -> ServiceModel:
    """Return botocore's model of the service."""
    return ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))


def _spoken(shape: Shape, value: Any, where: str) -> Any:
    """Return the value as a program hands it to botocore: blobs as bytes. Raises ValueError for an unknown word."""
    if shape.type_name == "blob":
        return base64.b64decode(value, validate=True)
    if isinstance(shape, StructureShape) and not shape.is_document_type and isinstance(value, dict):
        members = shape.members
        return {
            name: _spoken(members[name], each, f"{where}.{name}") if name in members else each
            for name, each in value.items()
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [_spoken(shape.member, each, f"{where}[{index}]") for index, each in enumerate(value)]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {name: _spoken(shape.value, each, f"{where}.{name}") for name, each in value.items()}
    if isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        message = f"{where}: {value!r} is none of {shape.enum}"
        raise ValueError(message)
    return value


def _check_bedrock(target: str, body: bytes) -> None:
    model, _, action = target.removeprefix("/model/").partition("/")
    operation = bedrock_service().operation_model({"converse": "Converse"}.get(action, "ConverseStream"))
    shape = operation.input_shape
    params = {"modelId": "the-model", **_spoken(shape, json.loads(body), "body")}
    report = ParamValidator().validate(params, shape)
    if report.has_errors():
        raise ValueError(report.generate_report())
    sent = create_serializer("rest-json").serialize_to_request(params, operation)
    assert (sent["url_path"], model) == (f"/model/the-model/{action}", quote("the-model", safe=""))
    assert json.loads(sent["body"]) == json.loads(body)


CHECKS: dict[str, Callable[[str, bytes], None]] = {
    "anthropic": _typed(MessageCreateParams),
    "bedrock": _check_bedrock,
    "chat_completions": _typed(CompletionCreateParams),
    "gemini": _check_gemini,
    "openai_responses": _typed(ResponseCreateParams),
}
"""By provider kind: take target and body of a request, and raise for what the SDK's types do not allow."""
