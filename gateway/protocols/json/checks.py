"""Checks a complete form when it is loaded.

`protocol` calls these checks. They reject a form if the gateway could not read the messages that a template writes, or
if a part of the form would never be used.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from gateway.core.datatypes import BOOL, BYTES
from gateway.core.models import Signature, TensorSpec
from gateway.protocols.json.arrangement import required_tensors
from gateway.protocols.json.bodies import MessageBody, is_json
from gateway.protocols.json.choice import fits
from gateway.protocols.json.compiled import CompiledExchange, CompiledForm
from gateway.protocols.json.form import FormError, Place
from gateway.protocols.json.heads import have_tensors
from gateway.protocols.json.one_row import check_row
from gateway.protocols.json.templates import (
    MISSING,
    Anything,
    Constant,
    Every,
    EverySpelling,
    FixedList,
    Member,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    RowList,
    Slot,
    Spelling,
    TensorPlace,
    children,
    walk,
    walk_all,
)


def check_form(form: CompiledForm) -> None:
    """Check the templates of a form against each other and against its `tensors`.

    Raises:
        FormError: a check fails. The error contains the position in the form.
    """
    specs = form.specs
    if form.form.batch:
        signature = form.signature or Signature()
        check_row(signature.inputs, signature.outputs)
        if all(each.form.stream for each in form.exchanges):
            text = "`batch: each` needs an exchange without `stream`, because each row has one response"
            raise FormError(("batch",), text)
    for place, exchange in _exchanges(form):
        for within, node in _nodes_of_tensors(exchange, place):
            _check_tensors(node, within, specs)
            _check_elements(node, specs, in_row=bool(form.form.batch))
            _check_written(node, within)
            _check_rows(node, within)
        _check_query(exchange, (*place, "query"), specs)
        _check_columns(exchange, (*place, "columns"))
        for key, body in (("request", exchange.request), ("response", exchange.response)):
            _check_alternatives(body.nodes, (*place, key), ignore_unknown=exchange.form.ignore_unknown)
    # a model list in which the names are keys has no nodes
    for within, node in _alternatives(form.models, ("models", "response")):
        _check_written(node, within)
        if not any(isinstance(each, TensorPlace) for each in walk(node)):
            raise FormError(within, "$model is missing; write it where the model's name is")
    for place, further in _smaller_bodies(form):
        for within, node in _alternatives(further, place):
            _check_written(node, within)
    for key, probe in (("ready", form.ready), ("live", form.live)):
        for within, node in _alternatives(probe.response, (key, "response")) if probe else ():
            _check_written(node, within)
    _check_declared(form)
    _check_default_type(form)
    _check_exchanges(form)
    _check_paths(form)


def _smaller_bodies(form: CompiledForm) -> Iterator[tuple[Place, MessageBody]]:
    """Yield the bodies without tensors that the gateway writes, and their positions."""
    yield ("models", "one", "response"), form.one_model
    yield ("error",), form.error
    for at, each in enumerate(form.failures):
        yield ("failures", at, "error"), each.error


def _exchanges(form: CompiledForm) -> Iterator[tuple[Place, CompiledExchange]]:
    several = len(form.exchanges) > 1
    for at, exchange in enumerate(form.exchanges):
        yield ("infer", at) if several else ("infer",), exchange


def _nodes_of_tensors(exchange: CompiledExchange, place: Place) -> Iterator[tuple[Place, Node]]:
    for node in exchange.query.nodes if exchange.query is not None else ():
        yield (*place, "query"), node
    yield from _alternatives(exchange.request, (*place, "request"))
    yield from _alternatives(exchange.response, (*place, "response"))


def _check_query(exchange: CompiledExchange, place: Place, specs: Mapping[str, TensorSpec]) -> None:
    """Check that each tensor, and `$params`, has a placeholder in the query or in the body, but not in both.

    If both contain tensors, also check that the form declares its tensors, because only the declaration assigns a
    tensor to the query.

    Raises:
        FormError: a check fails.
    """
    if exchange.query is None:
        return
    names = set(_names(exchange.query.nodes))
    if not specs and names and have_tensors(exchange.request.nodes):
        text = "is in the query, and other tensors are in the body: declare the form's tensors in `tensors`"
        raise FormError(place, f"${min(names)} {text}")
    both = (exchange.query.nodes, exchange.request.nodes)
    if all(any(isinstance(each, ParametersPlace) for each in walk_all(nodes)) for nodes in both):
        raise FormError(place, "$params stands in the query and in the body, expected one place")
    for name in _names(exchange.request.nodes):
        if name in names:
            raise FormError(place, f"${name} is in the query and in the body; remove one of them")


def _check_columns(exchange: CompiledExchange, place: Place) -> None:
    """Check that requests have a placeholder for the parameter that states the number of columns."""
    name, nodes = exchange.form.columns, [*walk_all(exchange.request.nodes)]
    known = exchange.head.parameters | {each.name for each in nodes if isinstance(each, ParameterPlace)}
    if name and name not in known:
        raise FormError(place, f"$param.{name} has no place in the request; add it to `request`, `query` or `headers`")


def _alternatives(body: MessageBody, place: Place) -> Iterator[tuple[Place, Node]]:
    several = len(body.nodes) > 1
    for at, node in enumerate(body.nodes):
        yield (*place, "$any", at) if several else place, node


# --- one template ---


def _check_tensors(node: Node, place: Place, specs: Mapping[str, TensorSpec]) -> None:
    """Check that each tensor has one placeholder, not counting the placeholder of its shape. If the form declares a
    tensor, also check that it declares all tensors."""
    places = [each for each in walk(node) if isinstance(each, TensorPlace)]
    names = Counter(each.name for each in places if each.spelling is not Spelling.SHAPE)
    for name, count in names.items():
        if count > 1:
            raise FormError(place, f"${name} occurs {count} times, expected once; for its shape write ${name}|shape")
        if specs and name not in specs:
            close = get_close_matches(name, specs, 1)
            meant = f"did you mean ${close[0]}?" if close else f"`tensors` has {', '.join(specs)}"
            raise FormError(place, f"${name} is not declared in `tensors`; {meant}")
    if not specs:
        _check_positions(node, places, place)
    for each in places:
        _check_place(each, places, place, specs.get(each.name))
    if any(isinstance(each, Every) or (isinstance(each, Object) and each.every) for each in walk(node)):
        _check_every(node, place, declared=bool(specs))


def _check_positions(node: Node, places: list[TensorPlace], place: Place) -> None:
    """Check that only the last tensor is optional if the gateway identifies tensors by position."""
    required = required_tensors(node)
    for each in places[:-1]:
        if each.name not in required and each.name != places[-1].name:
            text = f"${each.name} can be missing, so the position of later tensors would not identify them"
            raise FormError(place, f"{text}; declare the form's tensors in `tensors`")


def _check_place(each: TensorPlace, places: list[TensorPlace], place: Place, spec: TensorSpec | None) -> None:
    if each.spelling is Spelling.SHAPE:
        partners = [other for other in places if other.name == each.name and other.spelling in _SHAPED]
        if not partners or places.count(each) > 1:
            raise FormError(
                place, f"${each.name}|shape is the shape of ${each.name}|flat or |base64, which must be here"
            )
    if each.spelling is Spelling.BASE64:
        datatype = each.datatype or (spec.datatype if spec else None)
        if datatype is None or datatype is BYTES:
            raise FormError(
                place, f"${each.name}|base64 needs a datatype of numbers: write |base64:FP32, or declare it"
            )
        if spec and spec.datatype is not datatype:
            raise FormError(place, f"${each.name} is {spec.datatype} in `tensors` and {datatype} here")
    if spec and each.spelling in _NUMBERS and spec.datatype in (BYTES, BOOL):
        raise FormError(place, f"${each.name}|{each.spelling.value} is numbers, but `tensors` has {spec.datatype}")
    if spec and each.spelling in _TEXTS and spec.datatype is not BYTES:
        raise FormError(place, f"${each.name}|{each.spelling.value} is BYTES, but `tensors` has {spec.datatype}")


_ELEMENTS = frozenset({Spelling.SCALAR, Spelling.TEXT, Spelling.BYTES})


def _check_elements(node: Node, specs: Mapping[str, TensorSpec], *, in_row: bool) -> None:
    """Raise FormError if a placeholder for one element, outside of rows, belongs to a tensor that can have several
    elements.

    `in_row` is True if each body contains one row."""
    if isinstance(node, RowList):
        return
    for child in children(node):
        _check_elements(child, specs, in_row=in_row)
    if not isinstance(node, TensorPlace) or node.spelling not in _ELEMENTS or node.name not in specs:
        return
    spec = specs[node.name]
    if all(size == 1 for size in spec.shape):
        return
    what = f"${node.name}|{node.spelling.value} is one element"
    if in_row:
        text = f"{what} of each row: expected {spec.datatype} [-1]"
    elif spec.shape[0] == -1:
        text = (
            f"{what}, but {spec.datatype} {list(spec.shape)} is any number of them. If -1 counts rows and the server"
            " takes one row a call, add `batch: each` to the form: the gateway then calls it once for each row."
            f" Otherwise declare {spec.datatype} [1]"
        )
    else:
        text = f"{what}: expected {spec.datatype} [1], not {list(spec.shape)}"
    raise FormError(("tensors", node.name), text)


_SHAPED = frozenset({Spelling.FLAT, Spelling.BASE64})
_NUMBERS = frozenset({Spelling.NUMBERS, Spelling.COMMAS})
_TEXTS = frozenset({Spelling.TEXT, Spelling.TEXTS, Spelling.BYTES})


def _check_every(node: Node, place: Place, *, declared: bool) -> None:
    nodes = list(walk(node))
    if declared:
        raise FormError(place, "`$*` is for forms without `tensors`; name each tensor, or remove `tensors`")
    if any(isinstance(each, TensorPlace) for each in nodes):
        raise FormError(place, "`$*` means all tensors; remove the other tensors")
    objects = sum(isinstance(each, Object) and each.every for each in nodes)
    names = sum(isinstance(each, Every) and each.spelling is EverySpelling.NAMES for each in nodes)
    tables = sum(isinstance(each, Every) and each.spelling is EverySpelling.TABLE for each in nodes)
    if (objects, names, tables) not in ((1, 0, 0), (0, 1, 1)):
        raise FormError(place, 'write `$*` once: as `"$*": $*`, or as `$*|names` and `$*|table`')
    if any(isinstance(each, RowList) and any(isinstance(inner, Every) for inner in walk(each)) for each in nodes):
        raise FormError(place, "`$*|names` and `$*|table` are whole lists; write them outside of `[T, ...]`")


def _check_written(node: Node, place: Place) -> None:
    """Check that every `$_` that the gateway writes has a value, and that each parameter has one placeholder."""
    if isinstance(node, Anything) and node.written is MISSING:
        key = f'`"{place[-1]}?": $_`' if place and isinstance(place[-1], str) else "an optional key, `key?`"
        raise FormError(place, f"the form gives no value to write for $_; write `$_=VALUE`, or {key}")
    if isinstance(node, Object):
        for member in node.members:
            if not (member.optional and isinstance(member.node, Anything)):
                _check_written(member.node, (*place, _key(member)))
    else:
        for at, child in enumerate(children(node)):
            _check_written(child, (*place, at))
    nodes = list(walk(node))
    for name, count in Counter(each.name for each in nodes if isinstance(each, ParameterPlace)).items():
        if count > 1:
            raise FormError(place, f"$param.{name} occurs {count} times, expected once")
    if sum(isinstance(each, ParametersPlace) for each in nodes) > 1:
        raise FormError(place, "$params occurs twice, expected once")


def _key(member: Member) -> str:
    return f"{member.key}?" if member.optional else member.key


def _check_rows(node: Node, place: Place) -> None:
    """Check that the rows of each list contain a tensor, which determines the number of rows, and no placeholder of a
    whole tensor."""
    for each in walk(node):
        if isinstance(each, RowList):
            inner = list(walk(each.row))
            if not any(isinstance(one, TensorPlace) or (isinstance(one, Object) and one.every) for one in inner):
                raise FormError(place, "`[T, ...]` needs a tensor, which determines the number of rows")
            for one in inner:
                if isinstance(one, TensorPlace) and one.spelling in (Spelling.SHAPE, Spelling.ROW):
                    text = f"|{one.spelling.value} is for a whole tensor; write it outside of `[T, ...]`"
                    raise FormError(place, text)


def _check_alternatives(nodes: tuple[Node, ...], place: Place, *, ignore_unknown: bool) -> None:
    for at, node in enumerate(nodes):
        for earlier in range(at):
            if _covers(nodes[earlier], node, ignore_unknown=ignore_unknown):
                raise FormError(
                    (*place, "$any", at),
                    f"never read: alternative {earlier + 1} accepts everything that this one does; remove one of them",
                )


# --- the whole form ---


def _check_declared(form: CompiledForm) -> None:
    """Check that each tensor in `tensors` is part of requests or of responses, but not of both."""
    sides: tuple[set[str], set[str]] = (set(), set())
    for exchange in form.exchanges:
        sides[0].update(_names(exchange.input_nodes))
        sides[1].update(_names(exchange.response.nodes))
    for name in form.form.tensors:
        if name in sides[0] and name in sides[1]:
            raise FormError(("tensors", name), f"${name} is in requests and in responses; use two names")
        if name not in sides[0] | sides[1]:
            raise FormError(("tensors", name), f"${name} is in no template; add it to one, or remove it from `tensors`")


def _check_default_type(form: CompiledForm) -> None:
    default = form.default_type
    if default is not None and not any(fits(default, each.request_type) for each in form.exchanges):
        known = ", ".join(dict.fromkeys(each.form.media_type for each in form.exchanges))
        raise FormError(
            ("default_type",), f"no exchange has requests of {form.form.default_type}, expected one of {known}"
        )


def _names(nodes: Iterable[Node]) -> Iterator[str]:
    return (each.name for node in nodes for each in walk(node) if isinstance(each, TensorPlace))


def _check_exchanges(form: CompiledForm) -> None:
    exchanges = list(_exchanges(form))
    streams = {exchange.form.stream for _, exchange in exchanges if exchange.form.stream}
    if len(streams) > 1:
        raise FormError(("infer",), f"expected the same `stream` in all exchanges, got {' and '.join(sorted(streams))}")
    for at, (place, exchange) in enumerate(exchanges):
        if exchange.form.stream and not is_json(exchange.response_type):
            raise FormError((*place, "response_type"), "the messages of a stream are JSON, expected application/json")
        for number, (_, earlier) in enumerate(exchanges[:at]):
            if _is_hidden(exchange, earlier):
                text = f"never used: exchange {number + 1} accepts all requests that this one does; remove one of them"
                raise FormError(place, text)


def _is_hidden(later: CompiledExchange, earlier: CompiledExchange) -> bool:
    """Return True if `earlier` reads every request that `later` would read, and responds in the same media type."""
    one, other = earlier.form, later.form
    return (
        set(other.patterns) <= set(one.patterns)
        and earlier.request_type == later.request_type
        and earlier.response_type == later.response_type
        and bool(one.stream) == bool(other.stream)
        and (earlier.head.is_empty or (one.headers == other.headers and one.query == other.query))
        and all(
            any(_covers(node, inner, ignore_unknown=one.ignore_unknown) for node in earlier.request.nodes)
            for inner in later.request.nodes
        )
    )


def _check_paths(form: CompiledForm) -> None:
    """Check that each path belongs to one operation. Only the two probes can share a path."""
    found = {pattern: "`infer`" for each in form.exchanges for pattern in each.form.patterns}
    asked: list[tuple[Place, str, str]]
    asked = [(("ready", "path"), path, "a probe") for path in (form.form.ready.paths if form.form.ready else ())]
    if form.form.live is not form.form.ready:
        asked += [(("live", "path"), path, "a probe") for path in (form.form.live.paths if form.form.live else ())]
    if form.form.models:
        asked += [(("models", "path"), path, "`models`") for path in form.form.models.paths]
        asked += [(("models", "one", "path"), path, "one model") for path in form.form.models.one_paths]
    for place, path, operation in asked:
        other = found.setdefault(f"GET {path}", operation)
        if other != operation:
            raise FormError(place, f"GET {path} is the path of {other}, too; expected another")


# --- Templates that accept all bodies of another template ---


def _covers(wide: Node, narrow: Node, *, ignore_unknown: bool) -> bool:
    """Return True if `wide` accepts every body that `narrow` accepts. Return False if this is uncertain."""
    match wide, narrow:
        case Anything(), _:
            return True
        case TensorPlace(), _:
            return _tensor_covers(wide, narrow)
        case Object(), Object():
            return _object_covers(wide, narrow, ignore_unknown=ignore_unknown)
        case RowList(), RowList():
            return _covers(wide.row, narrow.row, ignore_unknown=ignore_unknown)
        case RowList(), FixedList():
            return all(_covers(wide.row, each, ignore_unknown=ignore_unknown) for each in narrow.nodes)
        case FixedList(), FixedList():
            return len(wide.nodes) == len(narrow.nodes) and all(
                _covers(one, other, ignore_unknown=ignore_unknown)
                for one, other in zip(wide.nodes, narrow.nodes, strict=True)
            )
        case Slot(), Constant():
            return isinstance(narrow.value, str)
        case ParameterPlace(), Constant() | ParameterPlace() | ParametersPlace() | Slot():
            return True
        case Constant() | Slot() | Every() | ParametersPlace(), _:
            return wide == narrow
    return False


def _tensor_covers(wide: TensorPlace, narrow: Node) -> bool:
    if isinstance(narrow, RowList):
        return wide.spelling is Spelling.NESTED and _tensor_covers(wide, narrow.row)
    if not isinstance(narrow, TensorPlace):
        return False
    if narrow.spelling in (Spelling.NUMBERS, Spelling.COMMAS) and wide.spelling is not narrow.spelling:
        return False  # declared numbers are not read from strings
    if wide.spelling is Spelling.NESTED:
        return narrow.spelling is not Spelling.SHAPE
    if wide.spelling is Spelling.ITEMS:
        return narrow.spelling not in (Spelling.SHAPE, Spelling.NESTED)
    return wide.spelling is narrow.spelling and wide.datatype is narrow.datatype


def _object_covers(wide: Object, narrow: Object, *, ignore_unknown: bool) -> bool:
    known = {member.key: member for member in wide.members}
    given = {member.key: member for member in narrow.members}
    if narrow.every and not wide.every:
        return False
    for key, member in known.items():
        if key in given:
            if given[key].optional and not member.optional:
                return False
            if not _covers(member.node, given[key].node, ignore_unknown=ignore_unknown):
                return False
        elif not member.optional or narrow.every:
            return False
    others = [member.node for key, member in given.items() if key not in known]
    return ignore_unknown or not others or (wide.every and all(isinstance(each, TensorPlace) for each in others))
