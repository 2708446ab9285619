"""Numbers with units: sizes in bytes, durations in seconds, bounds. Values are exact; otherwise ValueError
says what was expected.

The patterns are also part of the published JSON Schema, so they use only what ECMA 262 and Python share.
"""

from __future__ import annotations

import re
from fractions import Fraction

from orchestrator.model import Bound

SIZE = r"[0-9]{1,15}(\.[0-9]{1,9})? ?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)"
SIZE_PATTERN = f"^{SIZE}$"
RATE_PATTERN = r"^[0-9]{1,4}(\.[0-9]{1,3})? ?Gbps ?\+?$"
SIZE_BOUND_PATTERN = f"^{SIZE} ?\\+?$"
THROUGHPUT_PATTERN = r"^[1-9][0-9]{0,5} ?MiB/s$"
COUNT_BOUND_PATTERN = r"^[1-9][0-9]{0,5} ?\+?$"
DURATION_PATTERN = r"^(?=[0-9])([0-9]{1,9}d ?)?([0-9]{1,9}h ?)?([0-9]{1,9}m ?)?([0-9]{1,9}s)?$"

UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_size(value: object, *, low: int, high: int) -> int:
    """Parse `4 GiB`, `500 MB`, … to bytes between `low` and `high`."""
    text = _with_unit(value)
    if not re.fullmatch(SIZE_PATTERN, text):
        raise ValueError(_size_refusal(text))
    number, unit = _split(text)
    size = Fraction(number) * UNITS[unit]
    if size.denominator != 1:
        raise ValueError(f"'{text}' is not a whole number of bytes; write it in a smaller unit")
    if not low <= size <= high:
        raise ValueError(f"'{text}' is out of range; write {show_size(low)} to {show_size(high)}")
    return int(size)


def parse_size_bound(value: object, *, low: int, high: int) -> Bound:
    """Parse `16 GiB` as exactly, or `16 GiB+` as at least, that many bytes."""
    text = _with_unit(value)
    at_least = text.endswith("+")
    return Bound(parse_size(text[:-1].rstrip() if at_least else text, low=low, high=high), at_least)


def parse_least_size(value: object, *, low: int, high: int) -> int:
    """Parse `100 GB` or `100 GB+` to bytes; both mean at least that much."""
    return int(parse_size_bound(value, low=low, high=high).value)


def parse_least_rate(value: object, *, high: float) -> float:
    """Parse `10 Gbps` or `10 Gbps+` to Gbit/s; both mean at least that much."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"'{value}' has no unit; write {value} Gbps")
    if not isinstance(value, str) or not re.fullmatch(RATE_PATTERN, value):
        raise ValueError(f"expected a rate such as 10 Gbps, found {describe(value)}")
    rate = float(value.rstrip("+ ").removesuffix("Gbps"))
    if not 0 < rate <= high:
        raise ValueError(f"'{value}' is out of range; write more than 0 and up to {high:g} Gbps")
    return rate


def parse_throughput(value: object, *, high: int) -> int:
    """Parse `500 MiB/s` to MiB/s."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"'{value}' has no unit; write {value} MiB/s")
    if not isinstance(value, str) or not re.fullmatch(THROUGHPUT_PATTERN, value):
        raise ValueError(f"expected a throughput such as 500 MiB/s, found {describe(value)}")
    return _within(int(value.removesuffix("MiB/s")), high)


def parse_count_bound(value: object, *, high: int) -> Bound:
    """Parse `8` as exactly, or `8+` as at least, that many."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Bound(_within(value, high))
    if not isinstance(value, str) or not re.fullmatch(COUNT_BOUND_PATTERN, value):
        raise ValueError(f"expected a whole number such as 4, or 4+ for at least 4, found {describe(value)}")
    return Bound(_within(int(value.rstrip("+ ")), high), value.endswith("+"))


def _within(count: int, high: int) -> int:
    if not 1 <= count <= high:
        raise ValueError(f"{count} is out of range; write 1 to {high}")
    return count


def parse_duration(value: object, *, low: int, high: int) -> int:
    """Parse `45s`, `90m`, `2h30m`, `1d` to seconds between `low` and `high`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(_no_unit(value))
    if not isinstance(value, str):
        raise ValueError(f"expected a duration such as 90m or 2h30m, found {describe(value)}")
    if not re.fullmatch(DURATION_PATTERN, value):
        raise ValueError(_duration_refusal(value))
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", value))
    if not low <= seconds <= high:
        raise ValueError(f"'{value}' is out of range; write {show_duration(low)} to {show_duration(high)}")
    return seconds


def show_size(size: int | float) -> str:
    """Format 4294967296 as 4 GiB: the largest unit with at most two decimals, exact or rounded."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= UNITS[unit]:
            return f"{size / UNITS[unit]:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{int(size)} B"


def show_duration(seconds: int) -> str:
    """Format 9000 as 2h30m."""
    parts = []
    for unit, length in _SECONDS.items():
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def describe(value: object) -> str:
    """Format a value for an error message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text '{value if len(value) <= 60 else value[:57] + '…'}'"
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a mapping" if isinstance(value, dict) else "a list"


def _with_unit(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        unit = "GiB" if value < 1024 else "MiB" if value < 1024**2 else "B"
        raise ValueError(f"'{value}' has no unit; write {value} {unit}")
    if not isinstance(value, str):
        raise ValueError(f"expected a size such as 4 GiB, found {describe(value)}")
    return value


def _split(text: str) -> tuple[str, str]:
    number = text.rstrip("BKMGTi").rstrip()
    return number, text[len(number) :].strip()


def _size_refusal(text: str) -> str:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)( ?\+)?", text)
    if match is None:
        return f"expected a size such as 4 GiB, found {describe(text)}"
    number, unit, more = match[1], match[2], match[3] or ""
    if more:
        return f"'{text}' may not end in + here; write one size, {number} {unit or 'GiB'}"
    if not unit:
        return f"'{text}' has no unit; write {number} GiB"
    letter = unit[0].upper()
    if letter in "KMGT" and unit.upper() in (letter, f"{letter}I"):
        return f"'{text}' may mean {number} {letter}iB (1024s) or {number} {letter}B (1000s); write which"
    known = next((name for name in UNITS if name.lower() == unit.lower()), None)
    if known and len(number.split(".")[0]) <= 15:
        return f"'{unit}' is not a unit; write {number} {known}"
    return f"'{unit}' is not a unit; write one of {', '.join(UNITS)}"


def _no_unit(number: object) -> str:
    return (
        f"'{number}' has no unit; write {number}s for seconds, {number}m for minutes or {number}h for hours"
    )


def _duration_refusal(text: str) -> str:
    if re.fullmatch(r"[0-9]{1,9}", text):
        return _no_unit(text)
    if clock := re.fullmatch(r"([0-9]{1,4}):([0-5][0-9])(?::([0-5][0-9]))?", text):
        return f"'{text}' is not a duration; write {_clock(clock)}"
    if part := re.fullmatch(r"([0-9]{1,6}\.[0-9]{1,6}) ?([dhms])", text):
        seconds = Fraction(part[1]) * _SECONDS[part[2]]
        if seconds.denominator == 1:
            return f"'{text}' has a fraction; write {show_duration(int(seconds))}"
    return f"expected a duration such as 45s, 90m, 2h30m or 1d, found {describe(text)}"


def _clock(clock: re.Match[str]) -> str:
    first, second, third = (int(part or 0) for part in clock.groups())
    as_hours = show_duration(first * 3600 + second * 60 + third)
    return as_hours if clock[3] else f"{as_hours}, or {show_duration(first * 60 + second)}"
