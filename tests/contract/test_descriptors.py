"""Laws of the wire that buf has no rule for, read from the descriptors of the committed stubs."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from google.api import field_behavior_pb2
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    MethodDescriptor,
)

import modelmeter.v1

FILES: list[FileDescriptor] = [
    importlib.import_module(f"modelmeter.v1.{module.name}").DESCRIPTOR
    for module in pkgutil.iter_modules(modelmeter.v1.__path__)
    if module.name.endswith("_pb2")
]
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.services_by_name.values() for method in service.methods
]
# Any: the stubs that googleapis-common-protos ships do not type it as an extension.
_BEHAVIOUR: Any = field_behavior_pb2.field_behavior


def _nested(message: Descriptor) -> list[Descriptor]:
    return [message, *(inner for nested in message.nested_types for inner in _nested(nested))]


MESSAGES: list[Descriptor] = [
    message for file in FILES for top in file.message_types_by_name.values() for message in _nested(top)
]
ENUMS: list[EnumDescriptor] = [enum for file in FILES for enum in file.enum_types_by_name.values()] + [
    enum for message in MESSAGES for enum in message.enum_types
]


def _is_own(message: Descriptor) -> bool:
    return message.file.package == "modelmeter.v1" and not message.GetOptions().map_entry


def _request_messages() -> list[Descriptor]:
    """Return the request of each method and every message of ours that it can hold."""
    found: dict[str, Descriptor] = {}
    waiting = [method.input_type for method in METHODS]
    while waiting:
        message = waiting.pop()
        if message.full_name in found:
            continue
        found[message.full_name] = message
        inner = [
            field.message_type
            for field in message.fields
            if field.message_type is not None and field_behavior_pb2.OUTPUT_ONLY not in _behaviours(field)
        ]
        waiting += [candidate for candidate in inner if _is_own(candidate)]
    return [found[name] for name in sorted(found)]


def _ids(items):
    return [item.full_name for item in items]


def _behaviours(field: FieldDescriptor) -> set[int]:
    return set(field.GetOptions().Extensions[_BEHAVIOUR])


def test_the_contract_has_methods_messages_and_enums():
    assert {method.name for method in METHODS} >= {"Complete", "StreamComplete", "ListModels", "GetModel"}
    assert MESSAGES
    assert ENUMS


@pytest.mark.parametrize("message", _request_messages(), ids=_ids(_request_messages()))
def test_every_field_a_caller_fills_says_whether_it_is_required(message):
    said = {field.name: _behaviours(field) for field in message.fields}
    known = (field_behavior_pb2.REQUIRED, field_behavior_pb2.OPTIONAL, field_behavior_pb2.OUTPUT_ONLY)
    one_of_them = [{behaviour} for behaviour in known]
    assert not [name for name, behaviours in said.items() if behaviours not in one_of_them]


@pytest.mark.parametrize("message", _request_messages(), ids=_ids(_request_messages()))
def test_no_member_of_a_oneof_is_required(message):
    members = [field for field in message.fields if field.containing_oneof is not None]
    assert not [field.name for field in members if field_behavior_pb2.REQUIRED in _behaviours(field)]


LISTS = [method for method in METHODS if method.name.startswith(("List", "Query"))]


@pytest.mark.parametrize("method", LISTS, ids=_ids(LISTS))
def test_every_list_is_paged(method):
    asked, answered = method.input_type.fields_by_name, method.output_type.fields_by_name
    assert asked["page_size"].type == FieldDescriptor.TYPE_INT32
    assert asked["page_token"].type == FieldDescriptor.TYPE_STRING
    assert answered["next_page_token"].type == FieldDescriptor.TYPE_STRING
    assert [field.is_repeated for field in method.output_type.fields].count(True) == 1


@pytest.mark.parametrize("method", METHODS, ids=_ids(METHODS))
def test_every_method_has_a_request_and_a_response_of_its_own(method):
    assert method.input_type.name == f"{method.name}Request"
    assert method.output_type.name == f"{method.name}Response"


@pytest.mark.parametrize("enum", ENUMS, ids=_ids(ENUMS))
def test_the_zero_of_every_enum_means_not_said(enum):
    assert enum.values_by_number[0].name.endswith("_UNSPECIFIED")


@pytest.mark.parametrize("message", MESSAGES, ids=_ids(MESSAGES))
def test_no_field_loses_json_or_hides_a_unit(message):
    for field in message.fields:
        type_name = field.message_type.full_name if field.message_type is not None else ""
        # Struct drops key order and turns integers into doubles; a time in a number invites the wrong unit.
        assert not type_name.startswith(("google.protobuf.Struct", "google.protobuf.Value")), field.full_name
        assert not field.name.endswith(("_ms", "_millis", "_seconds", "_at_ms")), field.full_name


def test_every_counter_of_usage_can_be_absent():
    usage = next(message for message in MESSAGES if message.name == "Usage")
    counters = [field for field in usage.fields if not field.is_repeated]
    assert counters
    assert not [field.name for field in counters if not field.has_presence]


def test_verdict_and_bill_of_an_error_stand_outside_any_oneof():
    error = next(message for message in MESSAGES if message.name == "ModelError")
    assert not [oneof.name for oneof in error.oneofs if len(oneof.fields) > 1]
    assert {"kind", "disposition", "certainty", "usage", "additional_usage"} <= set(error.fields_by_name)
