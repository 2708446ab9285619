"""The JSON Schema (2020-12) of a profile, from the model that reads it."""

from __future__ import annotations

from typing import Any

from orchestrator.profile.document import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return what editors need to complete and check a profile. Empty and unknown keys are errors in it."""
    return {"$schema": DIALECT, **_tidy(Document.model_json_schema()), "title": "orch profile"}


def _tidy(node: Any) -> Any:
    """Remove pydantic's titles and nulls: a value that is absent has no key."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "patternProperties" in node:
        node = {**node, "additionalProperties": False}
        node.pop("propertyNames", None)
    if isinstance(node.get("properties"), dict):
        node = {**node, "properties": {key: _field(value) for key, value in node["properties"].items()}}
    return {key: _tidy(value) for key, value in node.items() if key != "title" or not isinstance(value, str)}


def _field(field: dict[str, Any]) -> dict[str, Any]:
    """Simplify one field: `null` is not a choice, and a single choice needs no list."""
    choices = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    kept = {
        key: value for key, value in field.items() if key != "anyOf" and (key, value) != ("default", None)
    }
    return {**(choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}), **kept}
