"""Whatever stands in a configuration as a form: an error of ours or a Protocol, and never another failure."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.json.form import FormError, parse_form
from gateway.protocols.json.protocol import protocol_of
from tests.limits import examples

WORDS = [
    "$x", "$y", "$x|flat", "$x|shape", "$x|base64", "$x|base64:FP32", "$y|scalar", "$z|texts", "$*", "$*|names",
    "$*|table", "$_", "$_=1", "$_={", "$id", "$model", "$version", "$index", "$message", "$code", "$code|grpc",
    "$params", "$param.k", "$param.", "$", "$$", "$$a", "$any", "...", "a", "$x|", "$x|flat:FP32", "$_x",
    "$x|what|flat",
]  # fmt: skip
KEYS = ["a", "b", "a?", "$*", "$any", "?", "", "$x", "$$x", 'a"', "\n", "$any?", 1, None, True, "a??"]
SCALARS = st.sampled_from([*WORDS, 0, -1, 1.5, float("nan"), 2**70, True, None, b"a", {1, 2}])
TEMPLATES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | inner.map(lambda each: [each, "..."])
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
        | st.lists(inner, max_size=3).map(lambda each: {"$any": each})
    ),
    max_leaves=8,
)
PATHS = st.sampled_from(["/p", "/{model}", "/{model}/{version}", "/{a}/x", "p", "/{", "/}", "/{model}{version}", "", 1])
TYPES = st.sampled_from([
    "application/json", "text/csv", "text/csv;header=present", "application/x-npy", "multipart/form-data",
    "text/plain", "*/*", "image/*", "application/jsonlines", "nonsense", "*/json",
])  # fmt: skip
PROBES = st.fixed_dictionaries({"path": PATHS}, optional={"status": st.integers(-1, 999), "response": TEMPLATES})
EXCHANGES = st.fixed_dictionaries(
    {"path": PATHS | st.lists(PATHS, max_size=3)},
    optional={
        "method": st.sampled_from(["GET", "post", "x", 1]),
        "request": TEMPLATES,
        "response": TEMPLATES,
        "headers": st.dictionaries(st.sampled_from(["x-a", "x-b?", "é", "a b", ""]), TEMPLATES, max_size=2),
        "query": st.dictionaries(st.sampled_from(["a", "b?"]), TEMPLATES, max_size=2),
        "media_type": TYPES,
        "response_type": TYPES,
        "stream": st.sampled_from(["sse", "jsonl", "openai", "x"]),
        "ignore_unknown": st.sampled_from([True, False, 1]),
    },
)
FORMS = st.fixed_dictionaries(
    {"infer": EXCHANGES | st.lists(EXCHANGES, max_size=3)},
    optional={
        "ready": PROBES,
        "live": st.fixed_dictionaries({"path": PATHS}),
        "models": st.fixed_dictionaries({"path": PATHS}, optional={"response": TEMPLATES}),
        "error": TEMPLATES,
        "error_type": TYPES,
        "tensors": st.dictionaries(
            st.sampled_from(["x", "y", "z", "", 1]),
            st.sampled_from(["FP64 [-1, 2]", "BYTES [-1]", "FP64", "x [1]", {"datatype": "FP32", "shape": [1]}, {}, 1]),
        ),
        "ignore_unknown": st.booleans(),
        "other": st.just(1),
    },
)


@settings(deadline=None, max_examples=examples(300))
@given(FORMS | TEMPLATES)
def test_a_form_is_an_error_or_a_protocol(form: Any) -> None:
    with suppress(FormError):
        assert protocol_of("any", parse_form(form)).patterns
