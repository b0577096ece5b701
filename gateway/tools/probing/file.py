"""Writes a commented configuration file from listeners and probed servers."""

from collections.abc import Sequence

from gateway.core.frozen import frozen
from gateway.tools.probing.stanza import WrittenBackend, left_to_write, quoted, stanza

HEAD = """\
# Configuration of Modelglot: listeners accept clients, routes choose a backend, backends are model servers.
#   gateway check --config FILE           checks the file
#   gateway check --live --config FILE    also queries the servers
#   gateway serve --config FILE           starts the gateway; reloads the file when it changes
"""
"""The first lines of the file, which describe it."""
_AFTER = """\
# The first matching route is used. Other keys of a route: rewrite, translate, signature, policies.
"""
_OPERATION = """\
health:                     # /healthz and /readyz for probes, /metrics for Prometheus
  bind: "127.0.0.1:9091"
admin:                      # /status and the console; keep it on loopback
  bind: "127.0.0.1:9090"
"""


@frozen
class WrittenListener:
    """A listener in the file."""

    name: str
    bind: str
    protocols: tuple[str, ...]
    model: str = ""
    """The model for requests without a model name; can be empty."""


def listeners_of(pairs: Sequence[tuple[str, str]]) -> tuple[WrittenListener, ...]:
    """Return listeners for pairs (protocol, address). Protocols at the same address share a listener."""
    at: dict[str, list[str]] = {}
    for protocol, bind in pairs:
        named = at.setdefault(bind, [])
        if protocol not in named:
            named.append(protocol)
    return tuple(WrittenListener(names[0].replace(":", "-") if len(names) == 1 else f"listener-{number}", bind,
                 tuple(names)) for number, (bind, names) in enumerate(at.items(), 1))  # fmt: skip


def listener_lines(listeners: Sequence[WrittenListener]) -> list[str]:
    """Return the lines of the file's `listeners` section."""
    lines = ["listeners:                  # where clients connect; several protocols can share an address"]
    for each in listeners:
        protocols = ", ".join(quoted(name) if ":" in name else name for name in each.protocols)
        model = f", model: {quoted(each.model)}" if each.model else ""
        lines.append(f"  - {{name: {each.name}, bind: {quoted(each.bind)}, protocols: [{protocols}]{model}}}")
    return lines


def configuration(
    listeners: Sequence[WrittenListener], backends: Sequence[WrittenBackend], left: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the text of the file. `left` contains the addresses of servers that get no backend, and the reason for
    each."""
    lines = listener_lines(listeners)
    body = stanza(backends).replace("\nroutes:\n", f"\n\n{_AFTER}routes:\n")
    comments = "".join("\n" + "\n".join(left_to_write(*each)) + "\n" for each in left)
    return f"{HEAD}\n" + "\n".join(lines) + f"\n{_OPERATION}\n{body}{comments}"
