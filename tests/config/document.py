"""Writes the table of keys in docs/configuration.md, and its rows into the pages of the policies:
`python -m tests.config.document`, which `make pages` runs."""

from gateway.assembly import registry
from gateway.config.catalog import Catalog
from gateway.config.schema import json_schema
from tests.config.test_schema import BEGIN, DOCUMENT, END, table
from tests.policies import test_documents as policies


def main() -> None:
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    after = rest[rest.index(END) :]
    DOCUMENT.write_text(before + BEGIN + table(json_schema(Catalog({}, registry.policies()))) + after)
    for policy in registry.policies():
        page = policies.page(policy)
        if page.exists():
            page.write_text(policies.documented(policy, page.read_text()))


if __name__ == "__main__":
    main()
