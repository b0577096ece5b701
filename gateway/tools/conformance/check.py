"""The common parts of all checks: Suite, Check, verdicts and `run`. Each protocol has its own file of checks;
docs/conformance.md, "Add a check", explains how to add a check.

A check is a function that sends a few requests to a server under test. It returns normally if the replies are correct.
Otherwise, it calls `fail`, `deviate`, `not_applicable` or `not_tested` with a reason.
"""

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from http.client import HTTPException
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from gateway.core.frozen import frozen
from gateway.tools.conformance.inputs import InputSpec

EXCERPT = 400
"""Maximum length of a message in an Outcome, in characters."""


class Verdict(StrEnum):
    """The verdict of a check."""

    PASS = "pass"
    FAIL = "fail"
    DEVIATES = "deviates"
    """Clients can use the server, but it differs from the specification or from most servers."""
    NOT_APPLICABLE = "not applicable"
    """The server does not claim the feature under test."""
    NOT_TESTED = "not tested"
    """The check needs information that is unavailable, such as a model's inputs."""


@frozen
class Options:
    """The user's options for the server. If `model` is empty, the checks choose a model. `timeout` is the time limit
    for each reply, in seconds."""

    model: str = ""
    inputs: tuple[InputSpec, ...] = ()
    timeout: float = 10.0


class Transcript:
    """The messages sent and received since the last `clear`, as readable text, and the total number of requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.sent: list[str] = []
        self.received: list[str] = []

    def clear(self) -> None:
        """Remove the messages, but keep the number of requests."""
        self.sent, self.received = [], []

    def send(self, head: str, body: bytes | str = b"") -> None:
        """Record a request."""
        self.requests += 1
        self.sent.append(_joined(head, body))

    def receive(self, head: str, body: bytes | str = b"") -> None:
        """Record a reply."""
        self.received.append(_joined(head, body))


class Unreachable(Exception):  # noqa: N818 - it ends the run, like SystemExit
    """No server answers at the address. The message describes the error."""


class Server(Protocol):
    """The server under test, with the methods that `run` needs. Each protocol has a subclass with additional methods,
    such as V2GrpcServer."""

    def reach(self) -> None:
        """Raise OSError or HTTPException if no server answers at the address."""

    def close(self) -> None:
        """Close open connections."""


class Judgement(Exception):  # noqa: N818 - a result, raised to end the check
    """A verdict other than `pass`, and its reason."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def fail(reason: str) -> NoReturn:
    """End the check, because the server breaks the rule."""
    raise Judgement(Verdict.FAIL, reason)


def deviate(reason: str) -> NoReturn:
    """End the check, because the server works, but deviates from the rule."""
    raise Judgement(Verdict.DEVIATES, reason)


def not_applicable(reason: str) -> NoReturn:
    """End the check, because the server does not claim the feature under test."""
    raise Judgement(Verdict.NOT_APPLICABLE, reason)


def not_tested(reason: str) -> NoReturn:
    """End the check, because it cannot run."""
    raise Judgement(Verdict.NOT_TESTED, reason)


def require(condition: object, reason: str) -> None:
    """Fail unless `condition` holds."""
    if not condition:
        fail(reason)


S = TypeVar("S", bound=Server)
V = TypeVar("V")


class basis(Generic[V]):  # noqa: N801 - used as a decorator, like `property`
    """A property that many checks need, computed once, such as the model's metadata or the reply to a plain request.

    If the property is unavailable, the first check that uses it fails, and the verdict of later checks is `not tested`.
    Thus, the report shows each fault once, and only one check waits for a server that does not respond."""

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self._name = compute.__name__

    def __get__(self, server: Any, owner: object = None) -> V:
        found = server.__dict__.setdefault("basis", {})
        if self._name not in found:
            try:
                found[self._name] = self._compute(server)
            except Exception as error:
                if not (isinstance(error, Judgement) and error.verdict != Verdict.FAIL):
                    found[self._name] = error
                raise
        elif isinstance(found[self._name], Exception):
            not_tested(f"an earlier check failed to get the required data: {_error_text(found[self._name])}")
        value: V = found[self._name]
        return value


@frozen
class Check(Generic[S]):
    """A check. `rule` is the specification's rule, and `section` is the section that states the rule. `run` raises a
    Judgement unless the rule holds."""

    id: str
    section: str
    rule: str
    run: Callable[[S], None]


@frozen
class Outcome:
    """The outcome of one check. `sent` and `received` are its messages as shortened text."""

    id: str
    section: str
    rule: str
    verdict: Verdict
    reason: str
    sent: tuple[str, ...]
    received: tuple[str, ...]


class Suite(Generic[S]):
    """The checks of one protocol, in the order in which they run."""

    def __init__(self, protocol: str, connect: Callable[[str, Options, Transcript], S]) -> None:
        self.protocol = protocol
        self.connect = connect
        """Returns the server under test. Raises ValueError for an address that is invalid for the protocol."""
        self.checks: list[Check[S]] = []

    def check(self, name: str, section: str, rule: str) -> Callable[[Callable[[S], None]], Callable[[S], None]]:
        """Add the decorated function to the suite. `name` is the check's id without the protocol."""

        def add(function: Callable[[S], None]) -> Callable[[S], None]:
            self.checks.append(Check(f"{self.protocol}.{name}", section, rule, function))
            return function

        return add

    def check_datatypes(
        self, name: str, section: str, rules: Mapping[str, tuple[str, str]], judge: Callable[[Any], object]
    ) -> None:
        """Add a check for each V2 datatype in `rules`, which contains the protocol's name of the datatype and the rule.
        The check's id is `name`, a dot and the protocol's name. `judge` receives the server if one of the server's
        `tensors` has the datatype."""

        def add(datatype: str, own_name: str, rule: str) -> None:
            @self.check(f"{name}.{own_name}", section, rule)
            def _(server: Any) -> None:
                if not any(each.datatype == datatype for each in server.tensors):
                    not_applicable(f"the model has no {own_name} input")
                judge(server)

        for datatype, (own_name, rule) in rules.items():
            add(datatype, own_name, rule)

    def selected(self, pattern: str) -> list[Check[S]]:
        """Return the checks whose id matches the glob `pattern` or contains it as a part between dots. An empty pattern
        selects all checks."""
        globs = (pattern, f"{self.protocol}.{pattern}", f"*.{pattern}", f"*.{pattern}.*", f"{pattern}.*")
        return [each for each in self.checks if not pattern or any(fnmatch.fnmatchcase(each.id, g) for g in globs)]


def run(
    suite: Suite[Any], address: str, options: Options, checks: Sequence[Check[Any]], transcript: Transcript
) -> Iterator[Outcome]:
    """Run `checks` sequentially.

    Raises:
        Unreachable: no server answers at `address`.
        ValueError: the address is invalid for the protocol.
    """
    server = suite.connect(address, options, transcript)
    try:
        why = _unreachable(server)
        if why:
            raise Unreachable(why)
        for check in checks:
            transcript.clear()
            verdict, reason = (Verdict.NOT_TESTED, why) if why else _judged(check, server)
            if verdict == Verdict.FAIL and not why:
                lost = _unreachable(server)
                why = f"no reply since the check {check.id}: {lost}" if lost else ""
            sent, received = tuple(transcript.sent), tuple(transcript.received)
            yield Outcome(check.id, check.section, check.rule, verdict, reason, sent, received)
    finally:
        server.close()


def _judged(check: Check[Any], server: Server) -> tuple[Verdict, str]:
    try:
        check.run(server)
    except Judgement as finding:
        return finding.verdict, str(finding)
    except TimeoutError:
        return Verdict.FAIL, "no reply within the timeout"
    except (OSError, HTTPException) as error:
        return Verdict.FAIL, f"no reply: {_error_text(error)}"
    except Exception as error:  # what a library raises for bytes that it cannot read must not end the run
        return Verdict.FAIL, f"a reply has an unexpected format: {_error_text(error)}"
    return Verdict.PASS, ""


def _unreachable(server: Server) -> str:
    try:
        server.reach()
    except (OSError, HTTPException) as error:
        return _error_text(error)
    return ""


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _joined(head: str, body: bytes | str) -> str:
    text = readable(body)
    return f"{head} {text}".strip() if text else head


def readable(body: bytes | str) -> str:
    """Return the beginning of a message as printable text: UTF-8 or hexadecimal digits."""
    if isinstance(body, bytes):
        begins = body[: EXCERPT * 4]
        try:
            text = begins.decode()
            if not all(each.isprintable() or each in "\r\n\t" for each in text):
                raise ValueError
        except ValueError:
            text = begins[: EXCERPT // 2].hex()
    else:
        text = body
    text = " ".join(text.split())
    return text if len(text) <= EXCERPT and len(body) <= EXCERPT * 4 else f"{text[:EXCERPT]}... ({len(body)} in all)"
