"""`python -m tests.documents.generate` writes the generated pages and tables of the documentation:

- `docs/commands.md`, from the help of the commands
- `docs/errors.md`, from the errors that the protocols write for each reason
- `config/examples/README.md`, from the comments at the start of the examples
- the tables between `<!-- pair: FRONT BACK -->` and `<!-- end -->` in other pages, from `docs/matrix.md`
- the tables between `<!-- NAME: begin -->` and `<!-- NAME: end -->`, for each NAME in TABLES
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from gateway.admin.console.explanations import EXPLANATIONS
from gateway.assembly.registry import protocols
from gateway.cli import application
from gateway.client import errors as client
from gateway.core.errors import Reason, refusal
from gateway.core.http2.frames import error_name
from gateway.core.messages import Message
from gateway.protocols.grps import GRPS_REST
from gateway.protocols.json import ready
from gateway.protocols.mip.schema import ErrorCode
from gateway.transports.grpc.client.failures import HTTP_ANSWERS, OTHER_HTTP_ANSWER, OTHER_RESET, RESETS
from tests.documents import architecture
from tests.documents.pages import ROOT, pages, slugify

COMMANDS = ROOT / "docs/commands.md"
ERRORS = ROOT / "docs/errors.md"
EXAMPLES = ROOT / "config/examples"
MATRIX = ROOT / "docs/matrix.md"

PAIR = re.compile(r"<!-- pair: (\S+) (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def generated() -> dict[Path, str]:
    """Return each generated file with its expected text."""
    whole = {COMMANDS: commands(), ERRORS: errors(), EXAMPLES / "README.md": examples()}
    parts = {page: text for page in pages() if page not in whole and (text := with_tables(page)) is not None}
    return whole | parts


# --- commands ---

COMMANDS_HEAD = """\
# Commands

This page lists all commands of `gateway`. `make pages` generates it from the help texts (`gateway COMMAND --help`).

| exit code | meaning |
| --- | --- |
| 0 | success, or a positive result |
| 1 | a negative result: a failure, a difference or a problem, described in the output |
| 2 | wrong usage: an invalid option, argument or address, or an unreadable file; for `init`: the file exists |
| 3 | the server cannot be reached |
| 4 | the server did not respond in time |
| 130 | interrupted by Ctrl-C |

In a clone of the repository, run `make setup` first; the command is then `.venv/bin/gateway`. `gateway --version`
prints the version. You can enable [shell completion](probe.md#shell-completion).
"""


def commands() -> str:
    """Return the text of docs/commands.md."""
    root: Any = typer.main.get_command(application)
    return "\n".join([COMMANDS_HEAD, *_overview(root), *_commands_of(root, "gateway")]).rstrip() + "\n"


def _overview(root: Any) -> Iterator[str]:
    """Return a row for each command, with a link to its section. The row of a group links to its first command."""
    yield from ("| command | |", "| --- | --- |")
    for name in root.list_commands(None):
        command = root.get_command(None, name)
        first = f" {next(iter(command.commands))}" if hasattr(command, "commands") else ""
        section = f"gateway {name}{first}"
        yield f"| [`gateway {name}`](#{slugify(section)}) | {_cell(command.get_short_help_str(limit=200))} |"
    yield ""


def _commands_of(group: Any, path: str) -> Iterator[str]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from _commands_of(command, f"{path} {name}")
        elif not command.hidden:
            yield from _command(command, f"{path} {name}")


def _command(command: Any, name: str) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join([name, "[OPTIONS]", *(_placeholder(each) for each in arguments)])
    yield from (f"## {name}", "", f"`{usage}`", "", _unwrapped(command.help or ""), "")
    if command.params:
        yield from ("| option | | description |", "| --- | --- | --- |")
        yield from (_row(f"`{_placeholder(each)}`", each) for each in arguments)
        yield from (_row(_option(each), each) for each in options)
        yield ""


def _placeholder(parameter: Any) -> str:
    text = str(parameter.metavar or parameter.name.upper()).strip("{}")
    return text if parameter.required or text.startswith("[") else f"[{text}]"


def _option(parameter: Any) -> str:
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}{value}`" for name in names)


def _row(shown: str, parameter: Any) -> str:
    return f"| {shown} | {'required' if parameter.required else ''} | {_cell(parameter.help or '')} |"


def _unwrapped(text: str) -> str:
    """Return the text with each paragraph on one line."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- errors ---

ERRORS_HEAD = """\
# Error codes

Every error has a reason. This page lists the error code that each protocol uses for each reason; `make pages` generates
it from the protocols' code. The [runbook](runbook.md#errors) explains each reason and what to do.

Clients receive the reason in the header `gateway-reason` (HTTP), in the trailing metadata `gateway-reason` (gRPC), or
at the start of the error message (MIP).

| column | content |
| --- | --- |
| gRPC | the status of `v2-grpc` |
| HTTP | the status of `v2-rest`, `v1-rest` and `graphpipe`, and the `code` in grps responses |
| UM-Bridge | the HTTP status and the `type` of the error |
| MIP | the error code |

"""
SAME_NUMBERS = ("v2-rest", "v1-rest", "graphpipe", "grps-rest")


def errors() -> str:
    """Return the text of docs/errors.md."""
    lines = ["| reason | gRPC | HTTP | UM-Bridge | MIP |", "| --- | --- | --- | --- | --- |"]
    for reason in Reason:
        shown = (f"`{reason.value}`", f"`{reason.status.name}`", _http(reason), _umbridge(reason), _mip(reason))
        lines.append(f"| {' | '.join(shown)} |")
    return ERRORS_HEAD + "\n".join(lines) + "\n" + GRPC_SERVERS_HEAD + _http_answers() + RESETS_HEAD + _resets()


GRPC_SERVERS_HEAD = """
## Answers of web servers

Over HTTP, a client usually receives a server's error message unchanged. For three types of responses, the gateway
writes its own message with the backend's name and address:

- For an HTML error page, the message also contains the page's title, but no HTML.
- For an error without a body, the message also contains the status.
- For a redirect, which the gateway does not follow, the message also contains the target and the address to configure
  instead.

## Answers of gRPC servers

**RESOURCE_EXHAUSTED** becomes `overloaded`, with the delay from the trailer `retry-after` or `grpc-retry-pushback-ms`.
If the error message reports, as in gRPC libraries, that a message is too large, the reason is `too-large` instead.

**An HTTP status without a gRPC status** comes from a proxy in front of the server, or from a server that does not use
gRPC. The gateway converts the HTTP status with [gRPC's
mapping](https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md) and adds its own reason. The error
message contains the backend, the HTTP status and the next step.

"""
RESETS_HEAD = """
The statuses 502, 503 and 504 mean that the proxy runs but the server behind it does not. They count as failures of the
endpoint, which receives no more calls after [several consecutive failures](health.md#endpoint-states). All other
statuses, such as 401 for a wrong token, concern only one call, so the endpoint continues to receive calls. By default,
the policy [retry](policies/retry.md) repeats only calls that failed with UNAVAILABLE.

**If the server resets a call** (RST_STREAM), the call fails with the status in [gRPC's
mapping](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors). A reset counts as a response to the
call, not as a failure of the endpoint.

"""


def _http_answers() -> str:
    rows = [(str(number), HTTP_ANSWERS[number]) for number in sorted(HTTP_ANSWERS)]
    rows.append(("any other, including 200", OTHER_HTTP_ANSWER))
    lines = ["| HTTP status | gRPC | reason |", "| --- | --- | --- |"]
    lines += [f"| {number} | `{each.status.name}` | `{each.reason.value}` |" for number, each in rows]
    return "\n".join(lines) + "\n"


def _resets() -> str:
    rows = [(f"`{error_name(code)}`", RESETS[code]) for code in sorted(RESETS)]
    lines = ["| code | gRPC | reason |", "| --- | --- | --- |"]
    rows.append(("any other", OTHER_RESET))
    lines += [f"| {name} | `{each.status.name}` | `{each.value}` |" for name, each in rows]
    return "\n".join(lines) + "\n"


def _reply(protocol: str, reason: Reason) -> Message:
    return protocols()[protocol].encode_error(refusal(reason, "why"), None, Message())


def _http(reason: Reason) -> str:
    numbers = {name: _reply(name, reason).status for name in SAME_NUMBERS}
    common = numbers["v2-rest"]
    others = [f"{number} in `{name}`" for name, number in numbers.items() if number != common]
    return ", ".join([str(common), *others])


def _umbridge(reason: Reason) -> str:
    reply = _reply("umbridge", reason)
    return f"{reply.status} `{json.loads(bytes(reply.body))['error']['type']}`"


def _mip(reason: Reason) -> str:
    code = bytes(_reply("mip", reason).body)[2]
    return f"{code} {ErrorCode(code).name}"


PAGES_OF_PHRASES = {
    "protocol compatibility matrix": "matrix.md",
    "keys and tokens": "security.md#api-keys",
    "`principals` and `permissions`": "security.md#permissions",
    "rate_limit": "policies/rate_limit.md",
    "circuit_breaker": "policies/circuit_breaker.md",
}
"""The phrases in the column "what to do" that are links in the runbook. The console shows them without links."""


def reasons() -> str:
    """Return the table of reasons in the runbook, from the explanations that the console shows."""
    explained = EXPLANATIONS.items()
    rows = (f"| `{reason.value}` | {text.meaning} | {_linked(text.look_at)} |\n" for reason, text in explained)
    return "| reason | meaning | what to do |\n|---|---|---|\n" + "".join(rows)


def _linked(text: str) -> str:
    for phrase, page in PAGES_OF_PHRASES.items():
        text = text.replace(phrase, f"[{phrase}]({page})")
    return text


def client_errors() -> str:
    """Return the table of errors in the client's page, from the docstrings of the error classes."""
    public = [each for each in vars(client).values() if isinstance(each, type)]
    classes = [each for each in public if issubclass(each, client.ClientError) and each is not client.ClientError]
    rows = (f"| `{each.__name__}` | {_cell(each.__doc__ or '')} |\n" for each in classes)
    return "| class | meaning |\n|---|---|\n" + "".join(rows)


# --- settings of a protocol, ready forms ---


def grps_settings() -> str:
    """Return the table of the settings of grps-rest."""
    assert GRPS_REST.settings is not None
    rows = (
        f"| `{each.name}` |{f' `{each.default}`' if each.default else ''} | {_cell(each.description)} |\n"
        for each in GRPS_REST.settings.keys
    )
    return "| setting | default | meaning |\n|---|---|---|\n" + "".join(rows)


FORMS = Path("gateway/protocols/json/forms")
BRIDGES = ROOT / "docs/bridges"


def ready_forms() -> str:
    """Return the table of built-in forms, from the comments at the start of their files, with links to bridge pages."""
    return "| name | servers and clients | a page |\n|---|---|---|\n" + "".join(map(_ready_form, ready.names()))


def _ready_form(name: str) -> str:
    comment = re.split("^# http", (ROOT / FORMS / f"{name}.yaml").read_text("utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    told = _cell(re.sub("^# ", "", comment, flags=re.MULTILINE))
    used = re.compile(rf"form: {name}\b|json:{name}\b")
    pages = [page for page in sorted(BRIDGES.glob("*.md")) if used.search(page.read_text("utf-8"))]
    links = ", ".join(f"[{page.stem}](bridges/{page.name})" for page in pages)
    return f"| [`{name}`](../{FORMS}/{name}.yaml) | {told} | {links} |\n"


# --- examples ---

EXAMPLES_HEAD = """\
# Examples

A configuration for each common use. The descriptions are the comments at the start of the files; `make pages` writes
this page. `gateway check --config FILE` checks a file. [The configuration pages](../../docs/configuration/README.md)
list all keys.

| file | description |
| --- | --- |
"""


def examples() -> str:
    """Return the text of config/examples/README.md."""
    rows = (f"| [{path.name}]({path.name}) | {_comment(path)} |" for path in sorted(EXAMPLES.glob("*.yaml")))
    return EXAMPLES_HEAD + "\n".join(rows) + "\n"


def _comment(path: Path) -> str:
    """Return the comment at the start of a file, on one line."""
    lines = path.read_text("utf-8").splitlines()
    return _cell(" ".join(line[1:] for line in lines[: next(at for at, line in enumerate(lines) if line[0] != "#")]))


# --- pairs ---


def with_tables(page: Path) -> str | None:
    """Return the text of `page` with current tables, or None if it has no generated tables."""
    text = page.read_text("utf-8")
    if not PAIR.search(text) and not TABLE.search(text):
        return None
    text = PAIR.sub(lambda found: f"<!-- pair: {found[1]} {found[2]} -->\n{pair(found[1], found[2])}<!-- end -->", text)
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def pair(front: str, back: str) -> str:
    """Return the rows of docs/matrix.md for `front` clients and `back` servers, as a table."""
    section = MATRIX.read_text("utf-8").split(f"## `{front}` clients\n")[1].split("\n## ")[0]
    rows = [_cells(line) for line in section.splitlines() if line.startswith("| ")]
    column = rows[0].index(f"`{back}`")
    cells = {row[0]: row[column] for row in rows[2:] if row[column]}
    datatypes = {name: word for name, word in cells.items() if re.fullmatch("[A-Z]+[0-9]*", name)}
    always = re.findall(r"^- (.*?): (.*)$", section, re.MULTILINE)
    lines = [f"| `{front}` clients, `{back}` servers | |", "| --- | --- |"]
    for word in sorted(set(datatypes.values()), key=_fidelity):
        lines.append(f"| {_meaning(word)} | {', '.join(name for name in datatypes if datatypes[name] == word)} |")
    others = [*((row, word) for row, word in cells.items() if row not in datatypes), *always]
    lines += [f"| {row} | {word} |" for row, word in others]
    return "\n".join(lines) + "\n"


MEANINGS = {
    "same": "datatypes that arrive unchanged",
    "value": "datatypes that become JSON numbers with the same values",
    "rounded": "datatypes that are rounded to doubles",
    "refused": "datatypes that the gateway refuses",
}


def _fidelity(word: str) -> tuple[int, str]:
    """Return the sort key of a result for datatypes: unchanged comes first, refused last."""
    ranks = {"same": 0, "value": 1, "rounded": 3, "refused": 4}
    return ranks.get(word, 2), word


def _meaning(word: str) -> str:
    return MEANINGS.get(word) or f"datatypes that are sent {word}"


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|  |") else line[2:-2].split(" | ")


TABLES: dict[str, Callable[[], str]] = {
    "client errors": client_errors,
    "folders": architecture.folders,
    "glossary": architecture.glossary,
    "grps settings": grps_settings,
    "ready forms": ready_forms,
    "reasons": reasons,
}
"""The functions for generated tables in handwritten pages, by the names in the table markers."""
TABLE = re.compile(rf"(<!-- ({'|'.join(TABLES)}): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)


if __name__ == "__main__":
    for file, text in generated().items():
        file.write_text(text, "utf-8")
