from typing import Any

import pytest

from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.patterns import Match, PathTable, Tie, rows
from gateway.core.protocol import HttpBinding, Protocol


def protocol(name: str, *patterns: str) -> Protocol:
    def unused(*_: Any) -> Any:
        raise AssertionError("a path table calls no codec")

    return Protocol(name, HttpBinding(), patterns, unused, unused, unused, unused, unused)


MODELS = protocol(
    "models",
    "GET /v2",
    "GET /v2/models/{model}",
    "GET /v2/models/{model}/versions/{version}",
    "POST /v2/models/{model}/infer",
    "POST /v2/models/index",
)
POINTS = protocol("points", "GET /Info", "POST /Evaluate")
ROOT = protocol("root", "POST /", "POST /{model}")

TABLE = PathTable([(MODELS, ""), (POINTS, ""), (ROOT, "")])


def matched(table: PathTable, method: str, path: str) -> Match:
    match = table.match(method, path)
    assert isinstance(match, Match)
    return match


@pytest.mark.parametrize(
    ("method", "path", "pattern", "captures"),
    [
        ("GET", "/v2", "GET /v2", {}),
        ("GET", "/v2/models/a", "GET /v2/models/{model}", {"model": "a"}),
        ("GET", "/v2/models/a/versions/7", "GET /v2/models/{model}/versions/{version}", {"model": "a", "version": "7"}),
        ("HEAD", "/v2/models/a", "GET /v2/models/{model}", {"model": "a"}),
        ("POST", "/v2/models/index", "POST /v2/models/index", {}),
        ("GET", "/v2/models/index", "GET /v2/models/{model}", {"model": "index"}),
        ("GET", "/v2/models/a%2Fb%20%C3%A4", "GET /v2/models/{model}", {"model": "a/b ä"}),
        ("GET", "/v2/models/%2541", "GET /v2/models/{model}", {"model": "%41"}),
        ("GET", "/v2/models/a+b", "GET /v2/models/{model}", {"model": "a+b"}),
        ("GET", "/v2/m%6fdels/a", "GET /v2/models/{model}", {"model": "a"}),
        ("GET", "//Info", "GET /Info", {}),
        ("POST", "/", "POST /", {}),
        ("POST", "/Evaluate", "POST /Evaluate", {}),
        ("POST", "/other", "POST /{model}", {"model": "other"}),
        ("GET", "/v2/models/" + "m" * 300, "GET /v2/models/{model}", {"model": "m" * 300}),
    ],
)
def test_finds_the_most_literal_pattern(method: str, path: str, pattern: str, captures: dict[str, str]) -> None:
    match = matched(TABLE, method, path)
    assert (match.pattern, match.captures) == (pattern, captures)
    assert pattern in match.protocol.patterns


VERBS = protocol(
    "verbs",
    "GET /v1/models/{model}",
    "POST /v1/models/{model}:predict",
    "POST /v1/models/{model}:explain",
    "POST /v1/models/{model}/versions/{version}:predict",
)


@pytest.mark.parametrize(
    ("method", "path", "pattern", "captures"),
    [
        ("POST", "/v1/models/m:predict", "POST /v1/models/{model}:predict", {"model": "m"}),
        ("POST", "/v1/models/a%2Fb:explain", "POST /v1/models/{model}:explain", {"model": "a/b"}),
        ("POST", "/v1/models/m%3Apredict", "POST /v1/models/{model}:predict", {"model": "m"}),
        ("POST", "/v1/models/a:b:predict", "POST /v1/models/{model}:predict", {"model": "a:b"}),
        ("GET", "/v1/models/m:predict", "GET /v1/models/{model}", {"model": "m:predict"}),
        (
            "POST",
            "/v1/models/m/versions/7:predict",
            "POST /v1/models/{model}/versions/{version}:predict",
            {"model": "m", "version": "7"},
        ),
    ],
)
def test_a_capture_may_end_in_literal_text(method: str, path: str, pattern: str, captures: dict[str, str]) -> None:
    assert matched(PathTable([(VERBS, "")]), method, path) == Match(VERBS, pattern, captures)


@pytest.mark.parametrize("path", ["/v1/models/m:foo", "/v1/models/:predict", "/v1/models/..:predict"])
def test_a_capture_before_literal_text_is_neither_empty_nor_dots(path: str) -> None:
    assert PathTable([(VERBS, "")]).match("POST", path) == ("GET", "HEAD")


def test_captures_with_the_same_ending_tie() -> None:
    other = protocol("other", "POST /v1/models/{name}:predict", "POST /v1/models/{name}:other")
    assert PathTable([(VERBS, ""), (other, "")]).ties == (Tie("POST /v1/models/{name}:predict", "verbs", "other"),)


def test_below_a_prefix_a_capture_may_end_in_literal_text() -> None:
    match = matched(PathTable([(VERBS, "/serving")]), "POST", "/serving/v1/models/m:predict")
    assert match.captures == {"model": "m"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v2", ("GET", "HEAD", "POST")),
        ("DELETE", "/v2/models/index", ("POST", "GET", "HEAD")),
        ("GET", "/v2/", ()),
        ("GET", "/v2/models", ()),
        ("GET", "/v2/models/", ()),
        ("GET", "/v2/models/.", ()),
        ("GET", "/v2/models/%2e%2E", ()),
        ("GET", "/V2", ("POST",)),
        ("GET", "/v2" + "/x" * 50_000, ()),
        ("GET", "/v2//models/a", ()),
    ],
)
def test_names_the_methods_of_a_path_without_a_match(method: str, path: str, allowed: tuple[str, ...]) -> None:
    assert TABLE.match(method, path) == allowed


@pytest.mark.parametrize(
    "path", ["/v2/models/%", "/v2/models/%4", "/v2/models/%zz", "/v2/models/%+1", "/v2/models/%ff"]
)
def test_refuses_what_is_not_percent_encoded_utf8(path: str) -> None:
    with pytest.raises(DecodeError, match=r"path segment '%"):
        TABLE.match("GET", path)


def test_a_prefix_stands_before_every_pattern_and_the_pattern_stays_the_protocols_own() -> None:
    table = PathTable([(MODELS, "/left/"), (ROOT, "right")])
    match = table.match("GET", "/left/v2/models/a")
    assert match == Match(MODELS, "GET /v2/models/{model}", {"model": "a"})
    assert table.match("POST", "/right") == Match(ROOT, "POST /", {})
    assert table.match("GET", "/v2/models/a") == ()


def test_backtracks_from_a_literal_that_leads_nowhere() -> None:
    table = PathTable([(protocol("p", "GET /a/b/c", "GET /{x}/b/d"), "")])
    assert matched(table, "GET", "/a/b/d").captures == {"x": "a"}


def test_equal_claims_are_ties_whatever_the_captures_are_called() -> None:
    one, other = protocol("one", "POST /m/{model}", "GET /m"), protocol("other", "POST /m/{name}", "POST /m")
    table = PathTable([(one, ""), (other, "")])
    assert table.ties == (Tie("POST /m/{name}", "one", "other"),)
    assert PathTable([(one, ""), (other, "/other")]).ties == ()


def test_methods_of_grpc_services_tie_as_well() -> None:
    one, other = protocol("one", "/a.B/C", "/a.B/D"), protocol("other", "/a.B/C")
    assert PathTable([(one, ""), (other, "")]).ties == (Tie("/a.B/C", "one", "other"),)


def test_blames_the_protocol_whose_first_segment_a_path_has() -> None:
    assert TABLE.protocol_for_error("/v2/nothing") is MODELS
    assert TABLE.protocol_for_error("//Evaluate") is POINTS
    assert TABLE.protocol_for_error("/nothing") is MODELS
    assert PathTable([(MODELS, ""), (POINTS, "/um")]).protocol_for_error("/um/nothing") is POINTS


def test_an_open_pattern_takes_what_nothing_else_has() -> None:
    anywhere = protocol("anywhere", "POST /*", "POST /api/*")
    table = PathTable([(MODELS, ""), (anywhere, "")])
    for path in ("/api/a/b/c/d/e/f/g", "/api/"):
        assert matched(table, "POST", path).pattern == "POST /api/*"
    for path in ("/api", "/", "/%zz/a/b/c/d/e/f/g"):
        assert matched(table, "POST", path).pattern == "POST /*"
    assert table.match("POST", "/v2/models/a/infer") == Match(MODELS, "POST /v2/models/{model}/infer", {"model": "a"})
    assert table.match("POST", "/v2") == ("GET", "HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/api/../secret", "/api/a/..", "/api/./a", "/api/%2e%2E/secret", "/api/a/.%2e", "/api/..%2fsecret",
        "/api/a%5C..%5Csecret", "/api/x\\..", "/api/a/b/c/d/e/f/g/../h",
    ],
)  # fmt: skip
def test_an_open_pattern_takes_nothing_that_leads_out_of_it(path: str) -> None:
    table = PathTable([(MODELS, ""), (protocol("anywhere", "POST /api/*"), "")])
    assert table.match("POST", path) == ()


def test_dots_within_a_segment_lead_nowhere() -> None:
    table = PathTable([(MODELS, ""), (protocol("anywhere", "POST /api/*"), "")])
    assert all(isinstance(table.match("POST", f"/api/{each}"), Match) for each in ("...", "a..b", "..a", "v1.0/x"))


ANY = replace(protocol("any", "POST /any/{model}"), binding=HttpBinding(any_path=("POST", "GET")))


def claims(found: tuple[tuple[Protocol, str], ...]) -> list[tuple[str, ...]]:
    return [(each.name, prefix, *each.patterns) for each, prefix in found]


def test_what_takes_any_path_has_the_root_where_the_listener_has_a_model() -> None:
    assert claims(rows([(ANY, "")], "", ())) == [("any", "", "POST /any/{model}")]
    assert claims(rows([(MODELS, ""), (ANY, "/pre")], "m", ())) == [
        ("models", "", *MODELS.patterns),
        ("any", "/pre", "POST /any/{model}", "POST /", "GET /"),
    ]


def test_what_takes_any_path_has_those_that_routes_match() -> None:
    routed = [
        ("", "/free"),
        ("", "/free"),
        ("any", "/named/*"),
        ("", "/v2/models/m/infer"),  # has an owner
        ("", "/Evaluate"),
        ("", "/open/*"),  # could be meant for either
        ("", "/%zz"),
        ("models", "/theirs"),
    ]
    found = rows([(MODELS, ""), (POINTS, ""), (ANY, "/pre")], "", routed)
    assert claims(found)[2:] == [
        ("any", "/pre", "POST /any/{model}"),
        ("any", "", "POST /free", "GET /free", "POST /named/*", "GET /named/*"),
    ]
    assert claims(rows([(ANY, "")], "", [("", "/open/*")]))[1:] == [("any", "", "POST /open/*", "GET /open/*")]
    table = PathTable(found)
    assert table.ties == ()
    assert table.match("GET", "/free") == Match(found[3][0], "GET /free", {})


def test_patterns_of_grpc_are_no_paths() -> None:
    service = protocol("service", "/package.Service/Method")

    assert rows([(service, "")], "m", [("", "/free")]) == ((service, ""),)


PAGED = replace(
    protocol("paged", "POST /paged/predict", "GET /paged/live"),
    binding=HttpBinding(
        passthrough=replace(protocol("paged"), binding=HttpBinding(any_path=("GET", "POST"))),
        pages=("GET /", "GET /paged/series"),
    ),
)


def test_a_page_of_metrics_is_served_on_request() -> None:
    assert claims(rows([(PAGED, "")], "m", ())) == [("paged", "", *PAGED.patterns)]
    assert claims(rows([(MODELS, ""), (PAGED, "/pre")], "", (), pages=True)) == [
        ("models", "", *MODELS.patterns),
        ("paged", "/pre", *PAGED.patterns, "GET /", "GET /paged/series"),
    ]


def test_a_page_and_what_takes_any_path_tie_at_the_root_where_the_listener_has_a_model() -> None:
    posting = replace(ANY, binding=HttpBinding(any_path=("POST",)))
    assert PathTable(rows([(PAGED, ""), (ANY, "")], "m", (), pages=True)).ties == (Tie("GET /", "paged", "any"),)
    for found in (
        rows([(PAGED, ""), (ANY, "")], "", (), pages=True),
        rows([(PAGED, ""), (ANY, "")], "m", ()),
        rows([(PAGED, ""), (posting, "")], "m", (), pages=True),
    ):
        assert PathTable(found).ties == ()


def test_messages_pass_untouched_where_routes_say_so() -> None:
    passed = [("paged", "/v1/chat"), ("paged", "/v1/files/*"), ("paged", "/v1/chat"), ("other", "/theirs")]
    found = rows([(MODELS, ""), (PAGED, "/pre")], "", (), passed)
    assert claims(found)[2:] == [("paged", "", "GET /v1/chat", "POST /v1/chat", "GET /v1/files/*", "POST /v1/files/*")]
    assert [each.http.is_passthrough for each, _ in found] == [False, False, True]
    table = PathTable(found)
    assert matched(table, "POST", "/v1/files/a/b").protocol is found[2][0]
    # an unknown path gets an error of a protocol that reads messages, not of the passthrough form
    assert table.protocol_for_error("/nothing") is MODELS


def test_a_path_of_the_protocols_own_may_pass_too() -> None:
    found = rows([(PAGED, "")], "", (), [("paged", "/paged/predict")])
    assert claims(found) == [
        ("paged", "", "GET /paged/live"),
        ("paged", "", "GET /paged/predict", "POST /paged/predict"),
    ]
    assert PathTable(found).ties == ()


def test_a_path_where_messages_pass_is_not_free() -> None:
    found = rows([(PAGED, ""), (ANY, "")], "", [("", "/v1/chat"), ("", "/free")], [("paged", "/v1/chat")])
    assert claims(found)[2:] == [("paged", "", "GET /v1/chat", "POST /v1/chat"), ("any", "", "POST /free", "GET /free")]
