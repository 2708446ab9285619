"""Routes and checks of requests out of Google's own description of Compute Engine's API."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import googleapiclient  # type: ignore[import-untyped]
from werkzeug.routing import Map, Rule

from tests.clouds.gcp.errors import ApiError, Json, invalid, unknown_name

_SYSTEM_PARAMETERS = {"$alt", "$prettyPrint"}


@dataclass(frozen=True)
class Method:
    """One method: `id` as compute.instances.insert; `request` names the schema of its body, or ""."""

    id: str
    verb: str
    path: str
    parameters: Mapping[str, Json]
    request: str
    response: str


class Document:
    """The description of one API."""

    def __init__(self, document: Json) -> None:
        self._schemas: Json = document["schemas"]
        self._common: Json = document["parameters"]
        self.revision: str = document["revision"]
        self.methods = {m.id: m for m in map(_method, _methods(document))}
        prefix = "/" + document["servicePath"].rstrip("/") + "/"
        self.routes = Map([_rule(prefix, method) for method in self.methods.values()], strict_slashes=False)

    def check_query(self, method: Method, query: Mapping[str, list[str]]) -> None:
        for name, values in query.items():
            known = method.parameters.get(name) or self._common.get(name)
            if known is None and name in _SYSTEM_PARAMETERS:
                continue
            if known is None or known.get("location") == "path":
                raise unknown_name("Cannot bind query parameter. Field could not be found", name, "")
            if len(values) > 1 and not known.get("repeated"):
                raise ApiError(400, "invalidParameter", f"Parameter '{name}' is given more than once.")
            for value in values:
                _check_text(name, value, known)
        for name, known in method.parameters.items():
            if known["location"] == "query" and known.get("required") and name not in query:
                raise ApiError(400, "required", f"Required parameter: {name}")

    def check_path(self, method: Method, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            pattern = method.parameters.get(name, {}).get("pattern")
            if pattern and not _matches(pattern, str(value)) and not str(value).isdigit():
                message = f"Invalid value for field '{name}': '{value}'. Must be a match of regex '{pattern}'"
                raise ApiError(400, "invalid", message)

    def check_body(self, method: Method, body: object) -> None:
        """ApiError 400 for what the schema of the body does not allow."""
        self.check(method.request, body)

    def check(self, schema: str, value: object) -> None:
        self._check(value, {"$ref": schema}, "")

    def _check(self, value: object, schema: Json, where: str) -> None:
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"]]
        kind = schema.get("type", "any")
        if kind == "any":
            return
        if not _is_a(value, kind, schema.get("format", "")):
            raise invalid(where, _shown(value), f"It must be of type {schema.get('format', kind)}.")
        if kind == "object":
            self._check_fields(value, schema, where)
        elif kind == "array":
            assert isinstance(value, list)
            for number, item in enumerate(value):
                self._check(item, schema["items"], f"{where}[{number}]")
        elif kind == "string":
            _check_string(where, str(value), schema)

    def _check_fields(self, value: object, schema: Json, where: str) -> None:
        assert isinstance(value, dict)
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            field = f"{where}.{name}" if where else name
            if name in known:
                self._check(item, known[name], field)
            elif others is not None:
                self._check(item, others, field)
            else:
                raise unknown_name("Cannot find field", name, where)


@functools.cache
def compute() -> Document:
    """Compute Engine v1, as shipped with google-api-python-client."""
    return _shipped("compute.v1.json")


@functools.cache
def storage() -> Document:
    """Cloud Storage v1."""
    return _shipped("storage.v1.json")


def _shipped(name: str) -> Document:
    folder = Path(googleapiclient.__file__).parent / "discovery_cache/documents"
    return Document(json.loads((folder / name).read_text()))


def _methods(resource: Json) -> Iterator[Json]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _methods(inner)


def _method(found: Json) -> Method:
    return Method(
        id=found["id"],
        verb=found["httpMethod"],
        path=found.get("flatPath") or found["path"],
        parameters=found.get("parameters", {}),
        request=found.get("request", {}).get("$ref", ""),
        response=found.get("response", {}).get("$ref", ""),
    )


def _rule(prefix: str, method: Method) -> Rule:
    path = re.sub(r"\{\+?(\w+)\}", r"<\1>", method.path.removeprefix("compute/v1/"))
    return Rule(prefix + path, methods=[method.verb], endpoint=method.id)


def _is_a(value: object, kind: str, form: str) -> bool:
    if kind == "string" and form in ("int64", "uint64"):
        return not isinstance(value, bool) and isinstance(value, str | int) and _whole(str(value))
    if kind == "integer":
        return not isinstance(value, bool) and isinstance(value, int)
    if kind == "number":
        return not isinstance(value, bool) and isinstance(value, int | float)
    types: dict[str, type] = {"string": str, "boolean": bool, "array": list, "object": dict}
    return isinstance(value, types[kind])


def _check_string(where: str, value: str, schema: Json) -> None:
    if "enum" in schema and value not in schema["enum"]:
        raise invalid(where, value, f"Must be one of: {', '.join(schema['enum'])}")
    if "pattern" in schema and not _matches(schema["pattern"], value):
        raise invalid(where, value, f"Must be a match of regex '{schema['pattern']}'")


def _check_text(name: str, value: str, known: Json) -> None:
    """A query parameter's value, which is text whatever its type."""
    wrong = {
        "boolean": value.lower() not in ("true", "false"),
        "integer": not _whole(value),
    }.get(known["type"], False)
    if not wrong and known["type"] == "integer":
        wrong = not int(known.get("minimum", -(1 << 62))) <= int(value) <= int(known.get("maximum", 1 << 62))
    if not wrong and "enum" in known:
        wrong = value not in known["enum"]
    if wrong:
        raise ApiError(400, "invalidParameter", f"Invalid value '{value}' for the parameter '{name}'.")


def _matches(pattern: str, value: str) -> bool:
    """The document's patterns are not anchored, the API's are."""
    return re.fullmatch(pattern, value) is not None


def _whole(text: str) -> bool:
    return re.fullmatch(r"-?\d+", text) is not None


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
