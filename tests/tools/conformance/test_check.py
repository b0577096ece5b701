"""How checks are run: what is told of a server that hangs, dies, or lacks what later checks need."""

import pytest

from gateway.tools.conformance.check import (
    Judgement,
    Options,
    Outcome,
    Suite,
    Transcript,
    Unreachable,
    Verdict,
    basis,
    fail,
    run,
)
from gateway.tools.conformance.report import lines


class Server:
    """A server that is there for the first `answers` times."""

    answers = 100

    def __init__(self, address: str, options: Options, transcript: Transcript) -> None:
        self.computed = 0

    def reach(self) -> None:
        self.answers -= 1
        if self.answers < 0:
            raise ConnectionRefusedError("refused")

    def close(self) -> None:
        pass

    @basis
    def metadata(self) -> str:
        self.computed += 1
        fail("there is none")


def verdicts(suite: Suite[Server]) -> list[tuple[Verdict, str]]:
    found = run(suite, "", Options(), suite.checks, Transcript())
    return [(each.verdict, each.reason) for each in found]


def test_what_many_checks_need_fails_once() -> None:
    suite, servers = Suite("toy", Server), []
    for name in ("first", "second"):

        @suite.check(name, "", "")
        def _(server: Server) -> None:
            servers.append(server)
            server.metadata  # noqa: B018

    assert verdicts(suite) == [
        (Verdict.FAIL, "there is none"),
        (Verdict.NOT_TESTED, "an earlier check failed to get the required data: there is none"),
    ]
    assert servers[-1].computed == 1


def test_a_server_that_is_gone_is_not_asked_again() -> None:
    class Mortal(Server):
        answers = 1

    suite: Suite[Server] = Suite("toy", Mortal)
    for name in ("kills", "later"):

        @suite.check(name, "", "")
        def _(server: Server) -> None:
            raise ConnectionResetError("reset")

    assert verdicts(suite) == [
        (Verdict.FAIL, "no reply: reset"),
        (Verdict.NOT_TESTED, "no reply since the check toy.kills: refused"),
    ]


def test_a_server_that_was_never_there() -> None:
    class Absent(Server):
        answers = 0

    suite: Suite[Server] = Suite("toy", Absent)
    with pytest.raises(Unreachable, match="refused"):
        verdicts(suite)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "no reply within the timeout"),
        (KeyError("outputs"), "a reply has an unexpected format: 'outputs'"),
        (Judgement(Verdict.FAIL, "wrong"), "wrong"),
    ],
)
def test_what_goes_wrong_is_a_failure(error: Exception, reason: str) -> None:
    suite: Suite[Server] = Suite("toy", Server)

    @suite.check("one", "", "")
    def _(server: Server) -> None:
        raise error

    assert verdicts(suite) == [(Verdict.FAIL, reason)]


def test_a_failure_on_a_terminal_and_in_a_file() -> None:
    outcome = Outcome("toy.one", "1", "be right", Verdict.FAIL, "wrong", ("GET /",), ("500",))
    more = [
        "                rule:     be right (1)",
        "                sent:     GET /",
        "                received: 500",
    ]
    assert lines(outcome, 8, colours=False) == ["fail            toy.one   wrong", *more]
    assert lines(outcome, 8, colours=True) == ["\033[31mfail          \033[0m  toy.one   wrong", *more]


def test_checks_are_selected_by_a_part_of_their_id_or_a_glob() -> None:
    suite: Suite[Server] = Suite("toy", Server)
    for name in ("error.shape", "error.dtype", "infer.json"):
        suite.check(name, "", "")(lambda server: None)
    assert [each.id for each in suite.selected("error")] == ["toy.error.shape", "toy.error.dtype"]
    assert [each.id for each in suite.selected("*.json")] == ["toy.infer.json"]
    assert [each.id for each in suite.selected("toy.error.s*")] == ["toy.error.shape"]
    assert suite.selected("wrong") == []
