"""The types of a profile's fields: each parses a YAML value, and has a JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orchestrator.model import Bound, clouds
from orchestrator.model.acceptance import NAME_PATTERN, Limit
from orchestrator.model.outcomes import Conclusion
from orchestrator.profile import accept, mismatch, units, values
from orchestrator.profile.command import parse_command

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
MAX_CPUS = 1024
MAX_RATE = 9999
MAX_THROUGHPUT = 100_000
MAX_IOPS = 1_000_000
MAX_RETRIES = 100
MAX_NODES = 64
_NOT_EMPTY = {"type": "string", "minLength": 1}


@dataclass(frozen=True, eq=False)
class Parsed:
    """A field's type: `parse` takes a YAML value or raises ValueError; `schema` describes the same to
    editors.
    """

    parse: Callable[[object], object]
    schema: dict[str, Any] | Callable[[], dict[str, Any]]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: object) -> JsonSchemaValue:
        return dict(self.schema() if callable(self.schema) else self.schema)


@dataclass(frozen=True, eq=False)
class OrOneWord:
    """A section that may also be written as one word."""

    word: dict[str, Any]

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self.word, handler(schema)]}


def _matching(pattern: str, *examples: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern, **({"examples": list(examples)} if examples else {})}


def _choice(*choices: str) -> Parsed:
    return Parsed(
        lambda value: values.parse_choice(value, choices), {"type": "string", "enum": list(choices)}
    )


def cloud_names() -> tuple[str, ...]:
    """Return the values of `cloud`, as messages and the schema list them."""
    return (clouds.LOCAL, *clouds.elsewhere(), clouds.ANY)


def _parse_cloud(value: object) -> str:
    if isinstance(value, str) and clouds.exists(value):
        return value
    aliases = {alias: each.name for each in clouds.every() for alias in each.aliases}
    return values.parse_choice(value, cloud_names(), aliases)


def _cloud_schema() -> dict[str, Any]:
    return {"type": "string", "enum": list(cloud_names())}


def _whole(low: int, high: int) -> Parsed:
    return Parsed(
        lambda value: values.parse_integer(value, low=low, high=high),
        {"type": "integer", "minimum": low, "maximum": high},
    )


def _memory(value: object) -> Bound:
    return units.parse_size_bound(value, low=64 * MIB, high=64 * TIB)


def _local_ssd(value: object) -> int:
    return units.parse_least_size(value, low=GIB, high=1024 * TIB)


def _network(value: object) -> float:
    return units.parse_least_rate(value, high=MAX_RATE)


def _disk(value: object) -> int:
    return units.parse_size(value, low=64 * MIB, high=64 * TIB)


def _expanded_disk(value: object) -> object:
    """Expand `100 GiB` to the mapping that it abbreviates."""
    if isinstance(value, dict):
        return value
    _disk(value)
    return {"size": value}


def _throughput(value: object) -> int:
    return units.parse_throughput(value, high=MAX_THROUGHPUT)


def _identity_cloud(value: object) -> str:
    return values.parse_choice(value, _with_identity())


def _with_identity() -> tuple[str, ...]:
    return tuple(each.name for each in clouds.every() if each.identity)


def _cpus(value: object) -> Bound:
    return units.parse_count_bound(value, high=MAX_CPUS)


def _gpus(value: object) -> Bound:
    return units.parse_count_bound(value, high=values.MAX_ACCELERATORS)


def _count(high: int, *examples: str) -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": high},
            _matching(units.COUNT_BOUND_PATTERN, *examples),
        ]
    }


def _duration(value: object) -> int:
    return units.parse_duration(value, low=10, high=30 * 86400)


NOTIFY_EVENTS = ("finished", "failed")

_ADDRESS = "The environment variable on this computer that holds the address."
_COMMAND = {
    "anyOf": [
        _NOT_EMPTY,
        {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1},
    ]
}
_FROM_ENV = {
    "description": "The environment variable on this computer that gives the value when the run starts.",
    **_matching(values.VARIABLE_PATTERN, "HF_TOKEN"),
}
_VARIABLE = {
    "anyOf": [
        {"type": ["string", "number", "boolean"]},
        {
            "type": "object",
            "properties": {"from_env": _FROM_ENV},
            "required": ["from_env"],
            "additionalProperties": False,
        },
    ]
}

Version = Annotated[int, Parsed(values.parse_version, {"type": "integer", "const": 1})]
Name = Annotated[str, Parsed(values.parse_name, _matching(values.NAME_PATTERN, "digits"))]
Text = Annotated[str, Parsed(values.parse_text, _NOT_EMPTY)]
Flag = Annotated[bool, Parsed(values.parse_flag, {"type": "boolean"})]
Steps = Annotated[int, _whole(1, 10_000)]
Retries = Annotated[int, _whole(0, MAX_RETRIES)]
FurtherSteps = Annotated[int, _whole(0, 1_000_000)]

Cloud = Annotated[str, Parsed(_parse_cloud, _cloud_schema)]
_LOCATION = _matching(values.LOCATION_PATTERN, "us-east-1")
Location = Annotated[str, Parsed(values.parse_location, _LOCATION)]
Regions = Annotated[
    str | tuple[str, ...],
    Parsed(
        values.parse_regions,
        {"anyOf": [_LOCATION, {"type": "array", "items": _LOCATION, "minItems": 1, "uniqueItems": True}]},
    ),
]
ImageName = Annotated[
    str, Parsed(values.parse_image, _matching(values.IMAGE_PATTERN, "ami-0123456789abcdef0"))
]
Price = Annotated[
    float, Parsed(values.parse_price, {"type": "number", "exclusiveMinimum": 0, "maximum": 10000})
]
Budget = Annotated[
    float, Parsed(values.parse_budget, {"type": "number", "exclusiveMinimum": 0, "maximum": 10**7})
]
Duration = Annotated[int, Parsed(_duration, _matching(units.DURATION_PATTERN, "90m", "2h30m", "1d"))]

Cpus = Annotated[Bound, Parsed(_cpus, _count(MAX_CPUS, "8", "8+"))]
Nodes = Annotated[int, _whole(1, MAX_NODES)]
Memory = Annotated[Bound, Parsed(_memory, _matching(units.SIZE_BOUND_PATTERN, "4 GiB", "16 GiB+"))]
Disk = Annotated[int, Parsed(_disk, _matching(units.SIZE_PATTERN, "10 GiB", "200 GB"))]
Iops = Annotated[int, _whole(1, MAX_IOPS)]
Throughput = Annotated[int, Parsed(_throughput, _matching(units.THROUGHPUT_PATTERN, "500 MiB/s"))]
DISK_SHORTHAND = BeforeValidator(_expanded_disk)
DISK_WORD = _matching(units.SIZE_PATTERN, "10 GiB", "200 GB")
InstanceType = Annotated[
    str, Parsed(values.parse_instance_type, _matching(values.TYPE_PATTERN, "g5.xlarge", "g2-standard-4"))
]
IdentityCloud = Annotated[
    str, Parsed(_identity_cloud, lambda: _matching(f"^({'|'.join(_with_identity())})$"))
]
LabelKey = Annotated[str, Parsed(values.parse_text, _matching(values.LABEL_PATTERN, "team"))]
LocalSsd = Annotated[int, Parsed(_local_ssd, _matching(units.SIZE_BOUND_PATTERN, "100 GB", "1 TB+"))]
Network = Annotated[float, Parsed(_network, _matching(units.RATE_PATTERN, "10 Gbps"))]
Arch = Annotated[str, _choice("x86_64", "arm64")]
GpuName = Annotated[
    str, Parsed(values.parse_accelerator_name, _matching(values.GPU_PATTERN, "T4", "A100-80GB"))
]
GpuCount = Annotated[Bound, Parsed(_gpus, _count(values.MAX_ACCELERATORS, "1+", "8"))]
GPU_WORD = _matching(values.ACCELERATOR_PATTERN, "T4", "L4:2")
GPU_SHORTHAND = BeforeValidator(values.expand_accelerator)

LocalPath = Annotated[str, Parsed(values.parse_local_path, _NOT_EMPTY)]
DataSource = Annotated[str, Parsed(values.parse_source, _NOT_EMPTY)]
Sample = Annotated[str, Parsed(values.parse_sample, _NOT_EMPTY)]
Target = Annotated[str, Parsed(values.parse_target, _NOT_EMPTY)]
StoreUrl = Annotated[str, Parsed(values.parse_store, _matching(values.STORE_PATTERN, "s3://bucket/prefix"))]
Output = Annotated[str, Parsed(values.parse_output, _NOT_EMPTY)]
ModuleName = Annotated[str, Parsed(values.parse_module_name, _matching(values.MODULE_PATTERN))]
Command = Annotated[tuple[str, ...], Parsed(parse_command, _COMMAND)]
VariableName = Annotated[str, Parsed(values.parse_variable_name, _matching(values.OWN_VARIABLE_PATTERN))]
ParameterName = Annotated[str, Parsed(values.parse_parameter_name, _matching(values.PARAMETER_PATTERN))]
ParameterValue = Annotated[str, Parsed(values.parse_parameter, {"type": ["string", "number", "boolean"]})]
VariableValue = Annotated[str | values.FromEnv, Parsed(values.parse_variable_value, _VARIABLE)]
NotifyEvent = Annotated[str, _choice(*NOTIFY_EVENTS)]
Webhook = Annotated[
    str | values.FromEnv,
    Parsed(
        values.parse_webhook,
        {
            "anyOf": [
                _matching(f"^{values.WEBHOOK_PATTERN}$", "https://example.org/hook"),
                {
                    "type": "object",
                    "properties": {"from_env": {**_FROM_ENV, "description": _ADDRESS}},
                    "required": ["from_env"],
                    "additionalProperties": False,
                },
            ]
        },
    ),
]
OnNan = Annotated[str, _choice("warn", "stop")]
Delivery = Annotated[str, _choice("auto", "push", "download")]
OnMismatch = Annotated[mismatch.OnMismatch, Parsed(mismatch.parse_on_mismatch, mismatch.SCHEMA)]
ModelName = Annotated[str, Parsed(accept.parse_model_name, _matching(f"^{NAME_PATTERN}$", "current"))]
Limits = Annotated[dict[str, Limit], Parsed(accept.parse_limits, accept.LIMITS_SCHEMA)]
Margins = Annotated[dict[str, float], Parsed(accept.parse_margins, accept.MARGINS_SCHEMA)]
AcceptedParity = Annotated[
    tuple[Conclusion, ...],
    Parsed(accept.parse_parity, {"type": "string", "enum": list(accept.PARITY_CHOICES)}),
]
