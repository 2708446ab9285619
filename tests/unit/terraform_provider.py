"""A provider for terraform that knows the distilled schemas and makes nothing: terraform's own `validate` and
`test` can be run with it, offline.

It speaks the plugin protocol, version 5, over a socket of this computer (TF_REATTACH_PROVIDERS). Of the
protocol's calls it answers one with more than "no objection": what the schema is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

_NESTING = {"single": 1, "list": 2, "set": 3}


@contextmanager
def serving(schema: Mapping[str, Any], folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which terraform finds the provider of `schema`; its socket lies in `folder`."""
    grpc: Any = import_module("grpc")
    answers = {"GetSchema": _schemas(schema)}

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            path, _, method = details.method.rpartition("/")
            if path != "/tfplugin5.Provider":
                return None
            if method == "PrepareProviderConfig":  # the configuration is handed back as it came
                return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
            return grpc.unary_unary_rpc_method_handler(lambda *_: answers.get(method, b""))

    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", 64 << 20)])
    server.add_generic_rpc_handlers((Handler(),))
    socket = folder / "provider.sock"
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    attached = {
        "Protocol": "grpc",
        "ProtocolVersion": 5,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "unix", "String": str(socket)},
    }
    try:
        yield {"TF_REATTACH_PROVIDERS": json.dumps({f"registry.terraform.io/{schema['provider']}": attached})}
    finally:
        server.stop(None).wait()


# ---------------------------------------------------------------- the schema in protobuf's own bytes


def _schemas(schema: Mapping[str, Any]) -> bytes:
    """tfplugin5.GetProviderSchema.Response."""
    parts = [_bytes(1, _schema(schema["configuration"]))]
    for number, kind in ((2, "resource"), (3, "data")):
        for name, known in schema[kind].items():
            parts.append(_bytes(number, _bytes(1, name.encode()) + _bytes(2, _schema(known))))
    return b"".join(parts)


def _schema(known: Mapping[str, Any]) -> bytes:
    return _bytes(2, _block(known))


def _block(known: Mapping[str, Any]) -> bytes:
    given = [_attribute(name, kind, name in known["required"]) for name, kind in known["arguments"].items()]
    read = [_attribute(name, kind, None) for name, kind in known.get("computed", {}).items()]
    nested = [_nested(name, block, name in known["required"]) for name, block in known["blocks"].items()]
    return b"".join([_bytes(2, one) for one in given + read] + [_bytes(3, one) for one in nested])


def _attribute(name: str, kind: str, required: bool | None) -> bytes:
    """`required` None: it is read only."""
    flag = {True: 4, False: 5, None: 6}[required]
    return _bytes(1, name.encode()) + _bytes(2, json.dumps(_type(kind)).encode()) + _number(flag, 1)


def _nested(name: str, known: Mapping[str, Any], required: bool) -> bytes:
    single = known["nesting"] == "single"
    least = _number(4, 1) if required and not single else b""
    most = b"" if known["many"] or single else _number(5, 1)
    return (
        _bytes(1, name.encode())
        + _bytes(2, _block(known))
        + _number(3, _NESTING[known["nesting"]])
        + least
        + most
    )


def _type(kind: str) -> Any:
    """As terraform writes types in JSON: "string", ["list", "string"]."""
    if kind in ("any", "object"):
        return "dynamic"
    outer, _, inner = kind.partition("(")
    return [outer, _type(inner[:-1])] if inner else outer


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
