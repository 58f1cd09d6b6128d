"""Server reflection under both of its names.

The library serves v1alpha only; v1 has the same messages under another name, and newer tools ask for it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

ALPHA = "grpc.reflection.v1alpha"
V1 = "grpc.reflection.v1"
NAMES = (f"{V1}.ServerReflection", f"{ALPHA}.ServerReflection")
"""The service's names, the newer one first."""


def reflection_handlers(services: Iterable[str]) -> list[grpc.GenericRpcHandler]:
    """Return handlers that describe these services and reflection itself."""
    servicer = reflection.aio.ReflectionServicer((*services, *NAMES), pool=_Pools())
    method: Any = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in NAMES]


class _Pools:
    """The process's descriptors and, beside them, reflection's own under its newer name.

    Apart from the default pool: whoever else registers `grpc.reflection.v1` there must not meet ours.
    """

    def __init__(self) -> None:
        self._default = descriptor_pool.Default()
        self._own = descriptor_pool.DescriptorPool()
        self._own.Add(_v1_file())

    def FindFileByName(self, name: str) -> Any:
        try:
            return self._default.FindFileByName(name)
        except KeyError:
            return self._own.FindFileByName(name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        try:
            return self._default.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._own.FindFileContainingSymbol(symbol)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._default, name)


def _v1_file() -> descriptor_pb2.FileDescriptorProto:
    """Return the file of v1, which differs from that of v1alpha in its names only."""
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name = "grpc/reflection/v1/reflection.proto"
    file.package = V1
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(ALPHA, V1)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(ALPHA, V1)
            method.output_type = method.output_type.replace(ALPHA, V1)
    return file
