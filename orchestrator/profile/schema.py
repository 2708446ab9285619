"""The JSON Schema (2020-12) of a profile, from the model that reads it."""

from __future__ import annotations

from typing import Any

from orchestrator.profile.document import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """What editors need to complete and check a profile. No key may be empty in it, and none is unknown."""
    return {"$schema": DIALECT, **_tidy(Document.model_json_schema()), "title": "orch profile"}


def _tidy(node: Any) -> Any:
    """Without pydantic's titles and nulls: an absent value is an absent key."""
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
    """One field: `null` is no choice of its own, and a lone choice is no choice."""
    choices = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    kept = {
        key: value for key, value in field.items() if key != "anyOf" and (key, value) != ("default", None)
    }
    return {**(choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}), **kept}
