"""Writes the table of keys in docs/configuration.md: `python -m tests.config.document`, which `make pages` runs."""

from gateway import registry
from gateway.config.catalog import Catalog
from gateway.config.schema import json_schema
from tests.config.test_schema import BEGIN, DOCUMENT, END, table


def main() -> None:
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    after = rest[rest.index(END) :]
    DOCUMENT.write_text(before + BEGIN + table(json_schema(Catalog({}, registry.policies()))) + after)


if __name__ == "__main__":
    main()
