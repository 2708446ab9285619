"""Parse values that are neither numbers nor commands: names, choices, paths, environment variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from orchestrator.model import Bound
from orchestrator.profile.units import describe

NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$"
LOCATION_PATTERN = r"^[a-z]+(-[a-z0-9]+)+$"
IMAGE_PATTERN = r"^[A-Za-z0-9*][A-Za-z0-9 ()\[\]./_:*?'@-]{0,254}$"
STORE_PATTERN = r"^(s3://|gs://|memory://|file:///)[^\s@?#]+$"
GPU_PATTERN = r"^[A-Za-z][A-Za-z0-9-]{0,39}$"
ACCELERATOR_PATTERN = r"^[A-Za-z][A-Za-z0-9-]{0,39}(:[0-9]{1,2}\+?)?$"
TYPE_PATTERN = r"^[a-z][a-z0-9-]{1,30}(\.[a-z0-9-]{1,30})?$"
LABEL_PATTERN = r"^[A-Za-z0-9_ +=.:/@-]{1,128}$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
PARAMETER_PATTERN = r"^[a-z][a-z0-9_]{0,39}$"
OWN_VARIABLE_PATTERN = r"^(?!ORCH_)[A-Za-z_][A-Za-z0-9_]*$"
MAX_ACCELERATORS = 16
MAX_PATH = 4096

_WINDOWS = re.compile(r"[A-Za-z]:([\\/]|$)|.*\\")
_SYSTEM = ("bin boot dev etc lib lib32 lib64 libx32 proc run sbin sys usr opt/orch").split()  # noqa: SIM905
_TOP = "home media mnt opt root srv tmp var".split()  # noqa: SIM905
_SYNONYMS = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "aarch64": "arm64",
    "yes": "true",
}


@dataclass(frozen=True)
class FromEnv:
    """A value that is taken from the environment variable `name` when the run starts, and never stored.

    `where` is the place of the entry in the profile, for the error if the variable is not set.
    """

    name: str
    where: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True)
class Accelerator:
    """GPUs as a profile names them; `memory` of each, in bytes."""

    count: Bound
    name: str | None = None
    memory: Bound | None = None


def nearest(word: str, known: Sequence[str], aliases: Mapping[str, str] = {}) -> str | None:
    """Return the one of `known` that `word` was probably meant to be. `aliases`: other words for some of
    them.
    """
    meant = aliases.get(word.lower()) or _SYNONYMS.get(word.lower())
    if meant in known:
        return meant
    return next(iter(difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)), None)


def parse_choice(value: object, choices: Sequence[str], aliases: Mapping[str, str] = {}) -> str:
    """Return one of `choices`. The error for a word in `aliases` suggests its choice."""
    if isinstance(value, str) and value in choices:
        return value
    near = nearest(value, choices, aliases) if isinstance(value, str) else None
    advice = f"; did you mean {near}?" if near else ""
    raise ValueError(f"expected one of {', '.join(choices)}, found {describe(value)}{advice}")


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        advice = f"; put it in quotes, '{value}'" if isinstance(value, int | float) else ""
        raise ValueError(f"expected text, found {describe(value)}{advice}")
    if not value.strip():
        raise ValueError("expected text, found an empty text")
    return value


def parse_name(value: object) -> str:
    text = parse_text(value)
    if not re.fullmatch(NAME_PATTERN, text):
        raise ValueError(
            "expected at most 40 lower-case letters, digits and hyphens, with a letter first, "
            f"found {describe(text)}"
        )
    return text


def parse_location(value: object) -> str:
    """Check the form of a region's or zone's name."""
    text = parse_text(value)
    if not re.fullmatch(LOCATION_PATTERN, text) or len(text) > 60:
        raise ValueError(f"expected a name such as us-east-1 or us-central1-a, found {describe(text)}")
    return text


def parse_regions(value: object) -> str | tuple[str, ...]:
    """Parse one region, or a list of several. A list with one entry equals that entry."""
    if not isinstance(value, tuple):
        return parse_location(value)
    names = tuple(parse_location(one) for one in value)
    if not names:
        raise ValueError("expected the name of a region, or a list of them, found an empty list")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ValueError(f"the region {twice} is named twice")
    return names[0] if len(names) == 1 else names


def parse_image(value: object) -> str:
    """Check the form of an image's name, by the rules of each cloud."""
    text = parse_text(value)
    if not re.fullmatch(IMAGE_PATTERN, text):
        raise ValueError(f"expected the name of an image, found {describe(text)}")
    return text


def parse_store(value: object) -> str:
    """Check the URL of a store, without contacting it."""
    text = parse_text(value)
    if not re.fullmatch(STORE_PATTERN, text):
        raise ValueError(
            f"expected s3://bucket/prefix, gs://bucket/prefix or file:///folder, found {describe(text)}"
        )
    return text


WEBHOOK_PATTERN = r"https?://[^\s/?#@]+(/[^\s#]*)?(\?[^\s#]*)?"


def parse_webhook(value: object) -> str | FromEnv:
    """Parse the URL that is notified of a run's end, or the variable that holds it, without contacting it."""
    if isinstance(value, dict):
        return parse_variable_value(value)
    text = parse_text(value)
    if not re.fullmatch(WEBHOOK_PATTERN, text):
        raise ValueError("expected https://host/path, or {from_env: NAME} for an address that is secret")
    return text


def parse_instance_type(value: object) -> str:
    """Check the form of an instance type's name."""
    text = parse_text(value)
    if not re.fullmatch(TYPE_PATTERN, text):
        raise ValueError(
            f"expected an instance type such as g5.xlarge or g2-standard-4, found {describe(text)}"
        )
    return text


def parse_version(value: object) -> int:
    if value != 1 or isinstance(value, bool | float):
        raise ValueError(f"expected 1, the version of profiles that this orch reads, found {describe(value)}")
    return 1


def parse_integer(value: object, *, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected a whole number, found {describe(value)}")
    if not low <= value <= high:
        raise ValueError(f"{value} is out of range; write {low} to {high}")
    return value


def parse_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    meant = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
    word = meant.get(value.lower()) if isinstance(value, str) else None
    advice = f"; write {word}" if word else ""
    raise ValueError(f"expected true or false, found {describe(value)}{advice}")


def parse_price(value: object) -> float:
    """Parse US dollars an hour."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"expected US dollars an hour such as 0.75, found {describe(value)}")
    if not 0 < value <= 10_000:
        raise ValueError(f"{value} is out of range; write US dollars an hour, above 0 and up to 10000")
    return float(value)


def parse_budget(value: object) -> float:
    """Parse US dollars a month."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"expected US dollars a month such as 50, found {describe(value)}")
    if not 0 < value <= 10**7:
        raise ValueError(f"{value} is out of range; write US dollars a month, above 0 and up to 10000000")
    return float(value)


def expand_accelerator(value: object) -> object:
    """Expand `T4` and `L4:2` to the mapping that they abbreviate; a mapping is returned unchanged."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str) or not re.fullmatch(ACCELERATOR_PATTERN, value):
        raise ValueError(
            "expected a GPU such as T4 or L4:2, or a mapping of name, count and memory, "
            f"found {describe(value)}"
        )
    name, _, count = value.partition(":")
    return {"name": name, "count": count or "1"}


def parse_accelerator_name(value: object) -> str:
    """Return a GPU's name as the catalogs spell it, in upper case: T4, L4, A100-80GB."""
    text = parse_text(value)
    if not re.fullmatch(GPU_PATTERN, text):
        raise ValueError(f"expected a GPU's name such as T4 or A100-80GB, found {describe(text)}")
    bare = re.sub(r"^(NVIDIA-)(TESLA-)?|^TESLA-", "", text.upper())
    if bare != text.upper():
        raise ValueError(f"'{text}' is the name on one cloud only; write {bare}")
    return bare


def parse_path(value: object) -> str:
    text = parse_text(value)
    if len(text) > MAX_PATH:
        raise ValueError(f"expected a path, found {describe(text)}, longer than any system accepts")
    return text


def parse_local_path(value: object) -> str:
    """Parse a path on this computer as written; only `~` is expanded later."""
    text = parse_path(value)
    if _WINDOWS.match(text):
        raise ValueError(
            f"'{text}' is a Windows path; write the path on this computer, with / between folders"
        )
    if variable := re.search(r"\$\{|\$[A-Za-z_]", text):
        raise ValueError(f"'{variable[0]}' is not expanded in paths (only ~ is); write the complete path")
    if re.match(r"~[^/]", text):
        raise ValueError("only ~ itself is expanded, not ~user; write the complete path")
    return text


_BUCKET = re.compile(r"(s3|gs)://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?")


def is_bucket(source: str) -> bool:
    """Whether a data source is an object of a bucket, or all objects below a prefix."""
    return source.startswith(("s3://", "gs://"))


def parse_source(value: object) -> str:
    """Parse a data source: a path on this computer, or the URL of an object or prefix of a bucket."""
    text = parse_path(value)
    if is_bucket(text):
        return _parse_bucket(text)
    if scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text):
        raise ValueError(
            f"'{scheme[0]}' is not supported for data; write a path on this computer, s3://bucket/prefix or "
            "gs://bucket/prefix"
        )
    return parse_local_path(text)


def _parse_bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError(f"'{text}' names no bucket; write e.g. {text[:5]}my-bucket/images")
    if any(part in (".", "..") for part in text.split("/")) or "//" in text[5:]:
        raise ValueError(
            f"'{text}' has an empty part, or a part of dots only; write the exact names of the objects"
        )
    return text


def parse_sample(value: object) -> str:
    """Parse a pattern of object names, relative to the source."""
    text = parse_path(value)
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError(
            f"'{text}' is outside the source; write it relative to the source, e.g. train-000*.tfrecord"
        )
    return text


def parse_target(value: object) -> str:
    """Parse where the script finds the data: relative to its working folder, or absolute; normalised."""
    text = parse_path(value)
    if _WINDOWS.match(text):
        raise ValueError(
            f"'{text}' is a Windows path, and the machines run Linux; write where the script looks there, "
            "e.g. data/images or /data/images"
        )
    if text.startswith("~") or "$" in text:
        raise ValueError(f"'{text}': nothing is expanded in targets; write the complete path")
    path = PurePosixPath(text)
    if ".." in path.parts:
        raise ValueError(f"'{text}' leaves the working folder; write a path without ..")
    if str(path) in (".", "/", "//"):
        raise ValueError("the target must name a folder or file, e.g. data")
    if path.is_absolute():
        _check_absolute(text, str(path).lstrip("/"))
        return "/" + str(path).lstrip("/")
    return str(path)


def _check_absolute(text: str, inside: str) -> None:
    if any(inside == system or inside.startswith(f"{system}/") for system in _SYSTEM):
        raise ValueError(f"'{text}' is used by the machine's system; write another, e.g. /data")
    if inside in _TOP:
        raise ValueError(f"'{text}' exists on every machine; write a new folder inside it, e.g. {text}/data")


def parse_output(value: object) -> str:
    """Parse a glob under the working folder; `*` does not cross folders, `**` does."""
    text = parse_path(value)
    if _WINDOWS.match(text):
        raise ValueError(f"'{text}' is a Windows path; the machines run Linux, write / between folders")
    if text.startswith(("/", "~")) or ".." in PurePosixPath(text).parts:
        raise ValueError(f"'{text}' is outside the working folder, and outputs must be inside it")
    try:
        re.compile("".join(re.findall(r"\[[^\]]+\]", text)))
    except re.error:
        raise ValueError(f"'{text}' has brackets without a valid range of characters") from None
    return str(PurePosixPath(text))


MODULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"


def parse_module_name(value: object) -> str:
    """Parse the name of a Python module, as in an import statement."""
    text = value if isinstance(value, str) else str(value)
    if not re.match(MODULE_PATTERN, text, re.ASCII) or text != text.strip():
        raise ValueError(
            f"'{text}' is not a module's name; write it as in an import, e.g. my_layers or net.layers"
        )
    return text


def parse_variable_value(value: object) -> str | FromEnv:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"from_env"} and isinstance(value["from_env"], str):
        name = value["from_env"]
        if not re.fullmatch(VARIABLE_PATTERN, name):
            raise ValueError("from_env takes the name of a variable, e.g. {from_env: HF_TOKEN}")
        return FromEnv(name)
    if value is None:
        raise ValueError("the variable has no value; write '' for an empty one")
    raise ValueError("expected text, or {from_env: NAME} to take the value of NAME here when the run starts")


def parse_parameter_name(value: object) -> str:
    text = str(value)
    if not re.fullmatch(PARAMETER_PATTERN, text):
        raise ValueError("expected a parameter's name: lower-case letters, digits and _, with a letter first")
    return text


def parse_parameter(value: object) -> str:
    """Return the text of a parameter's value, as it is written."""
    if not isinstance(value, str) or not value or "\n" in value:
        raise ValueError("expected one value: a number or a text of one line")
    return value


def parse_variable_name(value: object) -> str:
    text = str(value)
    if not re.fullmatch(VARIABLE_PATTERN, text):
        raise ValueError("expected a variable's name: letters, digits and _, with no digit first")
    if text.startswith("ORCH_"):
        raise ValueError("names that start with ORCH_ are reserved for orch")
    return text
