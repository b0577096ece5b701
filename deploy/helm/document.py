"""What the chart has of other files: the table of values in its README, generated from the comments in values.yaml, and
copies of the dashboard and the alerts, since a chart reads no file outside its folder: `make chart`.

A comment directly above a key describes it. Keys below a described key that have no comment of their own are part of
its default.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parent / "modelglot"
DEPLOY = CHART.parents[1]
COPIES = {
    DEPLOY / "grafana" / "gateway.json": CHART / "files" / "dashboard.json",
    DEPLOY / "prometheus" / "rules.yaml": CHART / "files" / "rules.yaml",
}
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"


class Row(NamedTuple):
    """One value: its dotted path, its default (a map of described keys has none) and what it means."""

    key: str
    default: Any
    meaning: str


NO_DEFAULT = object()
PIPE = "\\|"


def rows(text: str) -> Iterator[Row]:
    """The described keys of a values file, in its order."""
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _below(root, text.splitlines(), "", yaml.safe_load(text))


def _below(node: yaml.MappingNode, lines: list[str], prefix: str, values: dict[str, Any]) -> Iterator[Row]:
    for key, child in node.value:
        path, value = prefix + key.value, values[key.value]
        nested = list(_below(child, lines, f"{path}.", value)) if isinstance(child, yaml.MappingNode) else []
        if meaning := _comment(lines, key.start_mark):
            yield Row(path, NO_DEFAULT if nested else value, meaning)
        yield from nested


def _comment(lines: list[str], key: yaml.Mark) -> str:
    """The comment directly above a key that begins its line, as one paragraph."""
    found: list[str] = []
    if lines[key.line][: key.column].strip():
        return ""
    for above in reversed(lines[: key.line]):
        if not above.lstrip().startswith("#"):
            break
        found.insert(0, above.lstrip().removeprefix("#").strip())
    return " ".join(found)


def table(text: str) -> str:
    """The rows as a table in Markdown."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for row in rows(text):
        default = "" if row.default is NO_DEFAULT else f"`{json.dumps(row.default)}`"
        cells = [f"`{row.key}`", default, row.meaning]
        lines.append(f"| {' | '.join(cell.replace('|', PIPE) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def documented(readme: str, values: str) -> str:
    """The README with the table of these values between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(values)}{END}{after}"


def main() -> None:
    """Write the table into the chart's README, and the copies."""
    readme = CHART / "README.md"
    readme.write_text(documented(readme.read_text(), (CHART / "values.yaml").read_text()))
    for source, copy in COPIES.items():
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(source.read_text())


if __name__ == "__main__":
    main()
