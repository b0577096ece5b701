"""A notebook's cells that use the client, run in IPython; run as `notebook.py ADDRESS`, prints what they show."""

import sys

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell(f"from gateway.client import Client\nclient = Client({sys.argv[1]!r})", silent=True)
for cell in (
    "client.infer('nobody', [1.0])",
    "client.map('posterior', [[1.0, 2.0], [1.0]])",
    "def nested(theta):\n    return client.model('posterior')(theta)\n\nnested([1.0])",
):
    shell.run_cell(cell)
for cell in (
    "client",
    "client.signature('posterior')",
    "client.infer('posterior', [1.0, 2.0])",
    "client.map('posterior', [[1.0, 2.0]], progress=True)",
):
    value = eval(cell, shell.user_ns)
    shown, _ = shell.display_formatter.format(value)
    print(shown["text/plain"], shown["text/html"].startswith("<table>"), sep=" | ")
