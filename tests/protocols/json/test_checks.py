"""Templates that are wrong, found when the form is loaded: the error names the place in the form."""

import pytest

from gateway.protocols.json.form import FormError
from tests.protocols.json.declared import declared

REQUEST = ("infer", "request")
RESPONSE = ("infer", "response")


def infer(request: str = "$x", response: str = "$y", more: str = "", *, keys: str = "path: /p") -> str:
    return f"infer: {{{keys}, request: {request}, response: {response}}}\n{more}"


WRONG: list[tuple[str, tuple[str | int, ...], str]] = [
    (infer(keys="path: /p, columns: n"), ("infer", "columns"), "$param.n has no place"),
    (
        infer(more="default_type: text/csv"),
        ("default_type",),
        "no exchange has requests of text/csv, expected one of application/json",
    ),
    (infer(more="default_type: csv"), ("default_type",), "'csv' is no media type"),
    # the language
    (infer("{a: $x|flatt}"), (*REQUEST, "a"), "did you mean |flat?"),
    (infer("{a: $x|what}"), (*REQUEST, "a"), "|what is not a spelling of a tensor; expected one of |flat"),
    (infer("{a: $x|base64:FP65}"), (*REQUEST, "a"), "only |base64 has a datatype"),
    (infer("{a: $x|flat:FP32}"), (*REQUEST, "a"), "only |base64 has a datatype"),
    (infer("{a: $}"), (*REQUEST, "a"), "no name of a tensor"),
    (infer("{a: $any}"), (*REQUEST, "a"), "no name of a tensor"),
    (infer("{a: $x, b: $message}"), (*REQUEST, "b"), "$message has no meaning in a request"),
    (infer("{a: $x, b: $index}"), (*REQUEST, "b"), "it stands inside of `[T, ...]`"),
    (infer("[{a: $x, b: $id}, ...]"), (*REQUEST, 0, "b"), "one for the whole message"),
    (infer("[{a: $x, b: $param.k}, ...]"), (*REQUEST, 0, "b"), "one for the whole message"),
    (infer("{a: $x, b: $param.}"), (*REQUEST, "b"), "lacks the name"),
    (infer(more="error: {m: $message, k: $param.k}"), ("error", "k"), "which has no parameters"),
    (infer("{a: $*}"), (*REQUEST, "a"), "in an object"),
    (infer("{a: $*|what}"), (*REQUEST, "a"), "not a spelling"),
    (infer('{"$*": $x}'), (*REQUEST, "$*"), 'write `"$*": $*`'),
    (infer('{"$a": $x}'), (*REQUEST, "$a"), "written `$$a`"),
    (infer("{1: $x}"), (*REQUEST, "1"), "not a JSON key"),
    (infer('{a: $x, "a?": 1}'), (*REQUEST, "a?"), "twice"),
    (infer("'{\"a\": 1}'".replace("'", "")[:-1] + ", 'a\"': $x}"), (*REQUEST, 'a"'), "not supported"),
    (infer("{a: $x, b: 2026-01-01}"), (*REQUEST, "b"), "no constant"),
    (infer("{a: $x, b: .nan}"), (*REQUEST, "b"), "no constant"),
    (infer("[$x, ..., $z]"), REQUEST, "`[T, ...]`"),
    (infer("[...]"), REQUEST, "`[T, ...]`"),
    (infer("{$any: [$x], a: 1}"), REQUEST, "stands alone"),
    (infer("{$any: []}"), (*REQUEST, "$any"), "1 to 16"),
    (infer("{$any: [" + ", ".join(f"{{k{at}: $x}}" for at in range(17)) + "]}"), (*REQUEST, "$any"), "1 to 16"),
    (infer("{a: {$any: [$x]}}"), (*REQUEST, "a", "$any"), "no key"),
    (infer("[" * 40 + "$x" + "]" * 40), (*REQUEST, *[0] * 32), "nested at most 32 deep"),
    (infer("[" + ", ".join("1" for _ in range(1000)) + ", $x]"), (*REQUEST, 999), "1000 nodes"),
    # tensors
    (infer("{a: $x, b: $x}"), REQUEST, "occurs 2 times"),
    (infer("{a: $x|shape}"), REQUEST, "$x|flat or |base64, which must be here"),
    (infer("{a: $x|shape, b: $x}"), REQUEST, "$x|flat or |base64, which must be here"),
    (infer("[{a: $x|shape, b: $x|flat}, ...]"), REQUEST, "whole tensor"),
    (infer("[$x|row, ...]"), REQUEST, "|row is for a whole tensor"),
    (infer("{a: $x|base64}"), REQUEST, "needs a datatype"),
    (infer("{a: $x|base64}", "$y", "tensors: {x: 'BYTES [1]', y: 'FP64 [1]'}"), REQUEST, "needs a datatype"),
    (infer("{a: $x|base64:FP32}", "$y", "tensors: {x: 'FP64 [1]', y: 'FP64 [1]'}"), REQUEST, "FP64 in `tensors`"),
    (infer("{a: $x|text}", "$y", "tensors: {x: 'FP64 [1]', y: 'FP64 [1]'}"), REQUEST, "$x|text is BYTES"),
    (infer("{a: [{k: v}, ...], b: $x}"), REQUEST, "needs a tensor"),
    (infer("{a: [$_=1, ...], b: $x}"), REQUEST, "needs a tensor"),
    (infer('{"$*": $*, a: $x}'), REQUEST, "remove the other tensors"),
    (infer('{a: {"$*": $*}, b: {"$*": $*}}'), REQUEST, "write `$*` once"),
    (infer("{a: $*|names}"), REQUEST, "write `$*` once"),
    (infer("{a: $*|table}"), REQUEST, "write `$*` once"),
    (infer("[{a: $*|names, b: $*|table}, ...]"), REQUEST, "write them outside of `[T, ...]`"),
    (infer('{"$*": $*}', "$y", "tensors: {y: 'FP64 [1]'}"), REQUEST, "forms without `tensors`"),
    (infer(more="tensors: {x: 'FP64 [1]'}"), RESPONSE, "$y is not declared in `tensors`; `tensors` has x"),
    (infer("$xx", "$y", "tensors: {xxx: 'FP64 [1]', y: 'FP64 [1]'}"), REQUEST, "did you mean $xxx?"),
    (infer(more="tensors: {x: 'FP64 [1]', y: 'FP64 [1]', z: 'FP64 [1]'}"), ("tensors", "z"), "in no template"),
    (infer("$x", "$x", "tensors: {x: 'FP64 [1]'}"), ("tensors", "x"), "in requests and in responses"),
    (infer('{"a?": $x, b: $z}'), REQUEST, "$x can be missing, so the position"),
    (infer('{o: {"a?": $x}, "b?": $z}'), REQUEST, "declare the form's tensors"),
    # what cannot be written
    (infer("{a: $x, b: $_}"), (*REQUEST, "b"), "write `$_=VALUE`"),
    (infer("{a: $x, b: [$_]}"), (*REQUEST, "b", 0), "write `$_=VALUE`"),
    (infer(more="error: {m: $message, c: $_}"), ("error", "c"), "write `$_=VALUE`"),
    (infer(more="ready: {path: /r, response: {c: $_}}"), ("ready", "response", "c"), "write `$_=VALUE`"),
    (infer("{a: $x, b: $param.k, c: $param.k}"), REQUEST, "$param.k occurs 2 times"),
    (infer("{a: $x, b: $params, c: $params}"), REQUEST, "$params occurs twice"),
    (infer(keys="path: /p, headers: {h: $_}"), ("infer", "headers", "h"), "`$_=VALUE`"),
    (infer(keys="path: /p, headers: {h: [1]}"), ("infer", "headers", "h"), "a constant, a word"),
    (infer(keys="path: /p, query: {q: $x}"), ("infer", "query"), "declare the form's tensors"),
    # what is never used
    (infer("{$any: [{a: $x}, {a: $x|flat}]}"), (*REQUEST, "$any", 1), "alternative 1 accepts everything"),
    (infer('{$any: [{a: $x, "b?": $_}, {a: $x, b: 1}]}'), (*REQUEST, "$any", 1), "alternative 1 accepts everything"),
    (infer('{$any: [{"$*": $*}, {a: $x}]}'), (*REQUEST, "$any", 1), "alternative 1 accepts everything"),
    *[
        (infer(f"{{$any: [{wide}, {narrow}]}}"), (*REQUEST, "$any", 1), "alternative 1 accepts everything")
        for wide, narrow in (
            ("[{a: $x}, ...]", "[{a: $x}, {a: $z}]"),
            ("[$x, 1]", "[$z, 1]"),
            ("{a: $x, m: $model}", "{a: $x, m: iris}"),
            ("{a: $x, k: $param.k}", "{a: $x, k: 1}"),
            ("{a: $x|items}", "{a: $x|flat}"),
            ('{a: $x, "b?": $_}', "{a: $x}"),
        )
    ],
    (infer("{$any: [$x, [$x, ...]]}"), (*REQUEST, "$any", 1), "alternative 1 accepts everything"),
    (
        "infer: [{path: /p, request: $x, response: $y}, {path: /p, request: $z, response: {y: $y}}]",
        ("infer", 1),
        "exchange 1 accepts all",
    ),
    # the whole form
    (
        infer(
            "{x: $x}", "{y: $y}", "tensors: {x: 'FP64 [-1]', y: 'FP64 [-1]'}\nbatch: each", keys="path: /p, stream: sse"
        ),
        ("batch",),
        "needs an exchange without `stream`, because each row has one response",
    ),
    (
        infer(more="ready: {path: /r}\nlive: {path: /l}\nmodels: {path: /l, response: [$model, ...]}"),
        ("models", "path"),
        "GET /l is the path of a probe",
    ),
    (infer(more="ready: {path: /p}", keys="path: /p, method: GET"), ("ready", "path"), "is the path of `infer`"),
    (infer(more="models: {path: /m, response: {a: 1}}"), ("models", "response"), "$model is missing"),
    (
        "infer: [{path: /p, request: $x, response: $y, stream: sse},"
        " {path: /q, request: $x, response: $y, stream: jsonl}]",
        ("infer",),
        "the same `stream`",
    ),
    (
        infer(keys="path: /p, response_type: text/plain, stream: sse"),
        ("infer", "response_type"),
        "messages of a stream are JSON",
    ),
    (infer(keys="path: /p, media_type: nonsense"), ("infer", "media_type"), "no media type"),
    (infer(keys="path: /p, headers: {x-a: {$any: [a, b]}}"), ("infer", "headers", "x-a"), "a word"),
    (
        infer(more='models: {path: /m, response: {"/$model": $model, a: 1}}'),
        ("models", "response", "/$model"),
        "write only them",
    ),
    (infer(more="models: {path: /m, response: {$model: $x}}"), ("models", "response", "$model"), "write only them"),
    (
        infer(more='models: {path: /m, response: [$model, ...], one: {path: "/{model}", response: $x}}'),
        ("models", "one", "response"),
        "one model has no tensors",
    ),
    (
        infer(more="failures: [{status: 409, reason: overloaded, error: {a: $_}}]"),
        ("failures", 0, "error", "a"),
        "the form gives no value to write for $_; write `$_=VALUE`, or",
    ),
]


@pytest.mark.parametrize(("text", "place", "why"), WRONG, ids=[each[0][:90] for each in WRONG])
def test_a_form_that_cannot_be_used_is_refused(text: str, place: tuple[str | int, ...], why: str) -> None:
    with pytest.raises(FormError) as raised:
        declared(text)
    assert why in raised.value.message
    assert raised.value.path == place


@pytest.mark.parametrize(
    "text",
    [
        infer("{$any: [{input: $x|texts}, {input: $x|row}, {input: $x}]}"),
        infer("{$any: [{instances: $x}, {instances: [{a: $x}, ...]}]}"),
        infer("{$any: [[{a: $x}, ...], [{a: $x}, {b: $z}]]}"),
        infer("{$any: [[$x, 1], [$x, 1, 1]]}"),
        infer("{$any: [{a: $x, m: $model}, {a: $x, m: 1}]}"),
        infer("{$any: [{a: $x|items}, {a: $x}]}"),
        infer('{$any: [{a: $x}, {"$*": $*}]}'),
        infer("{$any: [{a: $x, k: 1}, {a: $x, k: 2}]}"),
        infer('{$any: [{a: $x}, {a: $x, "b?": $_}]}'),
        infer("$x", "{$any: [$y, {y: $y}]}"),
        "infer: [{path: /p, request: $x, response: $y},"
        " {path: /p, request: $x, response_type: text/plain, response: $y}]",
        "infer: [{path: /p, request: $x, response: $y}, {path: /q, request: $x, response: $y}]",
        "infer: [{path: /p, headers: {k: a}, request: $x, response: $y}, {path: /p, request: $x, response: $y}]",
        infer(more="ready: {path: /r}\nlive: {path: /r}"),
        infer('{a: $x, "b?": $z}'),
        infer('{"a?": $x, b: $z}', "$y", "tensors: {x: 'FP64 [1]', y: 'FP64 [1]', z: 'FP64 [1]'}"),
        infer("{a: $x, b: $_=1, c: '$_={}', d: $_=text}"),
    ],
)
def test_a_form_whose_parts_differ_is_accepted(text: str) -> None:
    assert declared(text).name == "json:test"
