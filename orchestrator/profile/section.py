"""The base of all mappings in a profile."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A mapping of known keys. A key without a value counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = cls.written_keys()
        return {key: found for key, found in value.items() if found is not None or key not in known}

    @classmethod
    def written_keys(cls) -> tuple[str, ...]:
        """Return the keys as they are written."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())
