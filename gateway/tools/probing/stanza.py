"""The YAML that a probe proposes: the backends of a configuration file and the routes to their models, or a complete
commented file for listeners and probed servers."""

from collections.abc import Iterator, Sequence

from gateway.assembly.forms import PREFIX, known
from gateway.client.settings import Tls
from gateway.core.frozen import frozen
from gateway.core.models import Signature, TensorSpec
from gateway.tools.printed import in_yaml, printable
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.listing import FoundModel, ServerModels
from gateway.tools.probing.probe import Spoken

MOST_ROUTES = 20
"""Maximum number of models with separate routes. A server with more models gets one route for all models."""


@frozen
class WrittenBackend:
    """A backend in the file: its name, and the probed server."""

    name: str
    spoken: Spoken
    access: ServerAccess


def backend_name(spoken: Spoken, taken: Sequence[str] = ()) -> str:
    """Return a backend name for the server: the server type or the protocol, with a number if the name is already in
    use."""
    base = spoken.flavor if spoken.flavor not in ("", "plain", "binary") else spoken.protocol.removeprefix(PREFIX)
    names = (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3)))
    return next(each for each in names if each not in taken)


def stanza(backends: Sequence[WrittenBackend]) -> str:
    """Return the `backends` and `routes` sections for these servers. Each model gets a route to the first server that
    has the model."""
    lines = ["backends:"]
    for each in backends:
        lines += _backend(each)
    lines.append("routes:")
    taken: set[str] = set()
    for each in backends:
        lines += _routes(each, taken)
    return "\n".join(lines) + "\n"


def _backend(backend: WrittenBackend) -> Iterator[str]:
    spoken = backend.spoken
    yield f"  {backend.name}:{_comment(_server_text(spoken))}"
    yield f"    protocol: {_protocol(spoken.protocol)}"
    yield f"    endpoints: [{quoted(spoken.address)}]"
    if spoken.flavor:
        yield f"    # flavor: {spoken.flavor}  # detected; set this key to skip detection"
    if not known()[spoken.protocol].traits.servers.runs_to_the_end:
        yield "    policies: [{timeout: {seconds: 60}}]"
    if backend.access.tls is not None:
        yield f"    tls: {{{', '.join(_tls(backend.access.tls))}}}"


def _tls(tls: Tls) -> list[str]:
    files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.certificate_key}
    named = {**files, "server_name": tls.server_name}
    return [f"{key}: {quoted(value)}" for key, value in named.items() if value] + (
        [] if tls.verify else ["verify: false"]
    )


def _server_text(spoken: Spoken) -> str:
    server = spoken.models.server
    return " ".join(each for each in (server.name, server.version) if each) if server is not None else ""


def _routes(backend: WrittenBackend, taken: set[str]) -> Iterator[str]:
    models, name = backend.spoken.models, backend.name
    own = [each for each in models.own if each.name not in taken]
    named = [each for each in own if each.name]
    if not named or len(own) > MOST_ROUTES:
        if "*" not in taken:
            yield from _for_all(models, name, has_routes=not own and bool(models.own))
        taken.add("*")
        return
    for each in named:
        taken.add(each.name)
        versions = f"; versions {', '.join(each.versions)}" if len(each.versions) > 1 else ""
        yield f"  - match: {{model: {quoted(each.name)}}}{_comment(signature_text(each) + versions)}"
        yield f"    backend: {name}"
    if len(named) == 1 and not _is_described(named[0]):
        yield from _signature_to_edit()
    derived = sorted({each.name for each in models.models} - {each.name for each in models.own})
    if derived:
        yield f"    # these come with the models above: {printable(', '.join(derived))[:160]}"


def _for_all(models: ServerModels, name: str, *, has_routes: bool) -> Iterator[str]:
    """Yield a route for all models. `has_routes` is True if each model already has a route to another server."""
    own = models.own
    if has_routes:
        shown = printable(", ".join(each.name for each in own[:MOST_ROUTES]))[:160]
        yield f"  # The routes above already handle {shown}. If the servers have the same models, list their"
        yield "  # addresses as endpoints of one backend. If their versions differ, match `version` in the routes."
        yield '  - match: {model: "*"}'
        yield f"    backend: {name}"
        return
    if len(own) > MOST_ROUTES:
        yield f'  - match: {{model: "*"}}  # {len(own)} models'
        yield f"    backend: {name}"
        return
    yield '  - match: {model: "*"}  # the server does not list its models'
    yield f"    backend: {name}"
    if not any(map(_is_described, own)):
        yield from _signature_to_edit()


def _is_described(model: FoundModel) -> bool:
    return model.signature is not None and bool(model.signature.inputs)


def _signature_to_edit() -> Iterator[str]:
    yield "    # The server reports no signature. If clients need one, uncomment and edit:"
    yield "    # signature:"
    yield "    #   inputs: [{name: x, datatype: FP64, shape: [-1, 3]}]"
    yield "    #   outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]"


def left_to_write(address: str, why: str) -> list[str]:
    """Return commented-out YAML for a server that the probe did not recognize. The user edits the YAML and moves it to
    `backends` and `routes`."""
    return [
        f"# TODO: no backend for {printable(address)[:160]}: {printable(why)[:500]}",
        "# With the right protocol, or with `protocol: json` and a `form`, add it to `backends` and `routes`:",
        f"#   NAME: {{protocol: PROTOCOL, endpoints: [{quoted(address)}]}}",
        "#   - {match: {model: MODEL}, backend: NAME}",
    ]


def signature_text(model: FoundModel) -> str:
    """Return the signature as text, such as `x FP64[-1,3] -> y FP64[-1,1]`, or an empty string if the signature is
    unknown."""
    signature = model.signature
    if signature is None or not (signature.inputs or signature.outputs):
        return ""
    return f"{tensors(signature.inputs)} -> {tensors(signature.outputs)}"


def tensors(specs: Sequence[TensorSpec]) -> str:
    """Return tensors as text, such as `x FP64[-1,3], k INT32[1]`."""
    return ", ".join(map(str, specs))


def operations(signature: Signature) -> str:
    """Return the operations of a model, in words."""
    return ", ".join(sorted(each.value for each in signature.operations))


def _protocol(name: str) -> str:
    return quoted(name) if ":" in name else name


def quoted(text: str) -> str:
    """Return `text` as a YAML scalar in which `${` does not refer to an environment variable."""
    return in_yaml(text).replace("${", "$${")


def _comment(text: str) -> str:
    return f"  # {printable(text)[:160]}" if text else ""


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
    """The model for requests without a model name, or empty."""


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
    """Return the text of the file. `left` contains the addresses of servers without a backend, and the reason for
    each."""
    lines = listener_lines(listeners)
    body = stanza(backends).replace("\nroutes:\n", f"\n\n{_AFTER}routes:\n")
    comments = "".join("\n" + "\n".join(left_to_write(*each)) + "\n" for each in left)
    return f"{HEAD}\n" + "\n".join(lines) + f"\n{_OPERATION}\n{body}{comments}"
