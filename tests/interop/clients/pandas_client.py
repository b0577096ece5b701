"""Send tables that pandas writes as CSV, and read replies with it, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, the table of the reply as columns. Steps:

    {"table": {column: [..]}, "header": whether it is sent and read with one, "to_csv": {option: value}}
"""

import csv
import io
from urllib.request import Request, urlopen

import pandas as pd


def run(url, table, header, to_csv=None):
    body = pd.DataFrame(table).to_csv(index=False, header=header, **(to_csv or {}))
    kind = "text/csv; header=present" if header else "text/csv"
    with urlopen(Request(url, body.encode(), {"content-type": kind, "accept": kind})) as reply:
        found = pd.read_csv(io.StringIO(reply.read().decode()), header=0 if header else None)
    return found.to_dict("list")


def main(url, steps):
    assert csv.QUOTE_ALL == 1  # as the steps have it
    return [run(url, **step) for step in steps]
