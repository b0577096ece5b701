"""The keys of the configuration as the documentation has them: `python -m tests.config.document`, which `make pages`
runs, writes them between the marks of these pages.

- `docs/configuration/KEY.md`: all keys below the key at the top of the file, but not those of policies
- `docs/configuration/README.md`: the keys at the top, with links to their pages
- `docs/policies/NAME.md`: the keys of a policy, which are the same wherever it stands

Each row is an anchor: `docs/configuration/backends.md#backends.health.interval`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.assembly import registry
from gateway.config.catalog import Catalog
from gateway.config.schema import dereferenced, json_schema

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "configuration"
OVERVIEW = FOLDER / "README.md"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"

HEAD = "| key | default | value | meaning |\n|---|---|---|---|\n"
POLICIES = ".policies[]"
WORDS = {
    "boolean": "`true`, `false`",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "object": "map",
    "array": "list",
}


class Key(NamedTuple):
    name: str
    """Its dotted name, in which `[]` is any item of a list and `.*` any key of a map."""
    required: bool
    schema: dict[str, Any]

    @property
    def anchor(self) -> str:
        """What a link to it has after `#`."""
        return self.name.replace("[]", "").replace(".*", "")

    @property
    def above(self) -> str:
        """The name of the map that it is in; empty for a key at the top."""
        return self.name.rpartition(".")[0]


def pages() -> dict[Path, str]:
    """Each page of keys with the text that it should have. A key at the top or a policy without a page gets one."""
    schema = json_schema(Catalog({}, registry.policies()))  # names of protocols are not its matter
    found = list(keys(schema))
    tables = {OVERVIEW: overview(found)}
    for top in (key for key in found if not key.above):
        below = [key for key in found if re.match(rf"{top.name}\b", key.name) and POLICIES not in key.above]
        tables[FOLDER / f"{top.name}.md"] = sections(schema, below)
    for policy in registry.policies():
        tables[DOCS / "policies" / f"{policy}.md"] = table(schema, keys_of_policy(found, policy))
    return {page: _with(page, text) for page, text in tables.items()}


def keys(schema: dict[str, Any], part: dict[str, Any] | None = None, above: str = "") -> Iterator[Key]:
    """Every key below `part` of the schema, or of all of it."""
    part = schema if part is None else part
    for name, inner in part.get("properties", {}).items():
        dotted = f"{above}.{name}".removeprefix(".")
        yield Key(dotted, name in part.get("required", ()), inner)
        yield from keys(schema, *_contents(schema, inner, dotted))


def keys_of_policy(found: list[Key], policy: str, above: str = "backends.*") -> list[Key]:
    """The keys of a policy, with names that begin with the policy's."""
    start = f"{above}{POLICIES}."
    named = [key for key in found if key.name.startswith(f"{start}{policy}.")]
    return [key._replace(name=key.name.removeprefix(start)) for key in named]


def overview(found: list[Key]) -> str:
    rows = [f"| [`{key.name}`]({key.name}.md) | {_meaning(key)} |\n" for key in found if not key.above]
    return "| key | meaning |\n|---|---|\n" + "".join(rows)


def sections(schema: dict[str, Any], found: list[Key]) -> str:
    """A table of the first key, which is at the top, and one for each map of keys below it."""
    top, *below = found
    maps: dict[str, list[Key]] = {}
    for key in below:
        maps.setdefault(key.above, []).append(key)
    headed = [f"### `{above}`\n\n{table(schema, inside)}" for above, inside in maps.items()]
    return "\n".join([table(schema, [top]), *headed])


def table(schema: dict[str, Any], found: list[Key]) -> str:
    """The rows of `found`: each has the last part of the name, and all of it as the anchor."""
    return HEAD + "".join(_row(schema, key) for key in found)


def _default(required: bool, part: dict[str, Any]) -> str:
    if required:
        return "*required*"
    if part.get("default") in (None, ""):
        return ""
    return f"`{json.dumps(part['default'])}`".replace('"', "")


def _values(schema: dict[str, Any], part: dict[str, Any]) -> str:
    """The cell of the values that a key takes."""
    scalars = [each for each in part.get("anyOf", ()) if each.get("type") != "null" and "pattern" not in each]
    if len(scalars) > 1 and not any("$ref" in each or each.get("type") in ("array", "object") for each in scalars):
        return " or ".join(dict.fromkeys(_values(schema, each) for each in scalars))
    part = dereferenced(schema, part)
    if part.get("enum"):
        return ", ".join(f"`{option}`" for option in part["enum"])
    word = WORDS.get(part.get("type", ""), "any")
    if word == "list":
        return f"list of {_values(schema, part['items'])}"
    return word


def _row(schema: dict[str, Any], key: Key) -> str:
    shown = f"`{key.name.rpartition('.')[2]}`"
    if key.above:  # a key at the top has the page's title as its anchor
        shown = f'<a id="{key.anchor}"></a>[{shown}](#{key.anchor})'
    cells = (shown, _default(key.required, key.schema), _values(schema, key.schema), _meaning(key))
    return f"| {' | '.join(cells)} |\n"


def _meaning(key: Key) -> str:
    """The cell of the description, whose links are written from `docs`; the pages are in folders of it."""
    return re.sub(r"\]\((?!https?:)", "](../", " ".join(key.schema["description"].split()))


def _contents(schema: dict[str, Any], part: dict[str, Any], dotted: str) -> tuple[dict[str, Any], str]:
    part = dereferenced(schema, part)
    if part.get("type") == "array":
        return _contents(schema, part["items"], f"{dotted}[]")
    if isinstance(part.get("additionalProperties"), dict):
        return _contents(schema, part["additionalProperties"], f"{dotted}.*")
    return part, dotted


def _with(page: Path, generated: str) -> str:
    """The page's text with `generated` between its marks.

    Raises:
        ValueError: a mark is missing, or is there twice.
    """
    text = page.read_text() if page.exists() else f"# {page.stem}\n\n## Keys\n\n{BEGIN}{END}"
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page}: write the lines {BEGIN.strip()!r} and {END.strip()!r} once, below `## Keys`")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{generated}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
