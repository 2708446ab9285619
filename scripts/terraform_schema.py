#!/usr/bin/env python3
"""Distil what terraform's providers say of the types used under terraform/ into terraform/schema/*.json.

The providers' schemas are read from the bindings that were generated from them: the npm packages below,
fetched with `npm pack`. Run it after a new type is used, or with a new version below.
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"aws": ("@cdktf/provider-aws", "21.22.1"), "gcp": ("@cdktf/provider-google", "16.12.1")}

_ATTRIBUTE = re.compile(
    r'(\w+): \{\s+value: .*,\s+isBlock: (true|false),\s+type: "(\w+)",\s+storageClassType: "(\w+)"'
)
_INTERFACE = re.compile(r"^export interface (\w+)[^{]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_PROPERTY = re.compile(r"/\*\*(.*?)\*/\s+readonly (\w+)(\??): ([^\n]*)", re.DOTALL)
_READ = re.compile(r"(tolist\()?(?:cdktf\.)?(?:this\.)?get(\w*)Attribute\('(\w+)'\)")
_PLAIN = {"string": "string", "number": "number", "boolean": "bool"}
_READ_AS = {
    "String": "string",
    "Number": "number",
    "Boolean": "bool",
    "List": "list(string)",
    "NumberList": "list(number)",
    "StringMap": "map(string)",
    "NumberMap": "map(number)",
    "BooleanMap": "map(bool)",
}


def main() -> None:
    for cloud, (package, version) in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / "terraform" / "schema" / f"{cloud}.json"
            text = json.dumps(distilled(cloud, package, version, Path(folder)), indent=1, sort_keys=True)
            path.write_text(text + "\n")


def distilled(cloud: str, package: str, version: str, folder: Path) -> dict[str, Any]:
    command = ["npm", "pack", f"{package}@{version}", "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
    home = folder / "package"
    provider = json.loads((home / "package.json").read_text())["cdktf"]["provider"]
    found: dict[str, Any] = {"resource": {}, "data": {}}
    for kind, name in sorted(used(cloud)):
        found[kind][name] = schema_of(home / "lib" / folder_of(kind, name))
    return {
        "provider": "/".join(provider["name"].split("/")[-2:]),
        "version": provider["version"],
        "source": f"npm {package} {version}",
        "configuration": schema_of(home / "lib" / "provider"),
        **found,
    }


def used(cloud: str) -> set[tuple[str, str]]:
    """(resource or data, type) of every block under terraform/CLOUD."""
    text = "".join(path.read_text() for path in (ROOT / "terraform" / cloud).glob("*.tf"))
    return set(re.findall(r'^(resource|data) "(\w+)"', text, re.MULTILINE))


def folder_of(kind: str, name: str) -> str:
    dashed = name.replace("_", "-")
    return f"data-{dashed}" if kind == "data" else dashed.partition("-")[2]


def schema_of(folder: Path) -> dict[str, Any]:
    """Arguments with types, nested blocks, what is required, and what can only be read."""
    types, code = (folder / "index.d.ts").read_text(), (folder / "index.js").read_text()
    said = {name: properties(body) for name, body in _INTERFACE.findall(types)}
    main_class = code[code.rindex("extends cdktf.Terraform") :]
    top = next(name for name in said if name.endswith("Config"))
    found = body_of(top, main_class, code, said)
    computed = dict.fromkeys(re.findall(r"new \w+\(this, [\"'](\w+)[\"']", main_class), "any")
    for is_set, kind, name in _READ.findall(main_class):
        computed[name] = "set(string)" if is_set else _READ_AS.get(kind, "any")
    if "id" not in found["required"] and cloud_made(main_class):
        found["arguments"].pop("id", None)  # the bindings add it to all; it is read, not given
        computed["id"] = "string"
    given = found["arguments"].keys() | found["blocks"].keys()
    return {**found, "computed": {name: kind for name, kind in computed.items() if name not in given}}


def cloud_made(main_class: str) -> bool:
    """Whether it is a resource or a data source, not the provider's own configuration."""
    return not main_class.startswith("extends cdktf.TerraformProvider")


def properties(body: str) -> dict[str, tuple[bool, str]]:
    """Of an interface: provider's name of each property → (required, type as TypeScript has it)."""
    found = {}
    for said, _, optional, kind in _PROPERTY.findall(body):
        named = re.search(r"#(\w+) \w+#", said)
        if named:
            found[named.group(1)] = (not optional, kind)
    return found


def body_of(
    interface: str, own: str, code: str, said: dict[str, dict[str, tuple[bool, str]]]
) -> dict[str, Any]:
    start = own.find("const attrs = {")
    own = own[start : own.find("// remove undefined attributes", start)] if start >= 0 else ""
    arguments: dict[str, str] = {}
    blocks: dict[str, Any] = {}
    for name, is_block, kind, storage in _ATTRIBUTE.findall(own):
        written = said[interface].get(name, (False, ""))[1]
        if is_block == "true":
            blocks[name] = block_of(written, kind, code, said)
        else:
            arguments[name] = type_of(kind, storage)
    required = sorted(name for name, (needed, _) in said[interface].items() if needed)
    unknown = set(required) - arguments.keys() - blocks.keys()
    if unknown:
        raise SystemExit(f"{interface}: {unknown} are required and were not found; the package has changed")
    return {"arguments": arguments, "blocks": blocks, "required": required}


def block_of(
    written: str, kind: str, code: str, said: dict[str, dict[str, tuple[bool, str]]]
) -> dict[str, Any]:
    many = "[]" in written
    nesting = {"struct": "single"}.get(kind, kind)
    interface = re.split(r"[\[; |]", written)[0]
    if interface not in said:
        raise SystemExit(f"{written} ({kind}) is not known; the package has changed")
    function = f"function {interface[0].lower()}{interface[1:]}ToHclTerraform"
    own = code[code.index(function) :]
    return {"many": many, "nesting": nesting, **body_of(interface, own, code, said)}


def type_of(kind: str, storage: str) -> str:
    if kind == "simple":
        return _PLAIN.get(storage, "any")
    if kind == "struct":
        return "object"
    return f"{kind}({_PLAIN.get(storage.removesuffix('List').removesuffix('Map'), 'any')})"


if __name__ == "__main__":
    main()
