"""Traits must not contradict each other, and every backend protocol must be able to express certain requests. The
messages of failures say what to change in a new protocol."""

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.core.protocol import Rows, Traits
from gateway.core.requests import Request
from tests.contract.cases import each_dialect
from tests.contract.flavors import Dialect
from tests.contract.wire import or_error


@each_dialect
def test_the_traits_fit_together(dialect: Dialect) -> None:
    found = contradictions(dialect.traits)
    assert not found, "; ".join(found)


def contradictions(traits: Traits) -> list[str]:
    """Return the rules that these Traits break."""
    wire, models = traits.wire, traits.models
    has_metadata = bool(models.metadata_parts) or models.signature is not None
    rules = {
        "without `metadata_parts` and without a `signature`, `trusted_metadata` has to be False": (
            has_metadata or not models.trusted_metadata
        ),
        "`operations_part` has to be one of `metadata_parts`": (
            not models.operations_part or models.operations_part in models.metadata_parts
        ),
        "a wire without INT64 cannot tell a companion model its tensors' positions: `companions` has to be False": (
            Datatype.INT64 in wire.datatypes or not models.companions
        ),
        "with `points`, `rows` has to be ONE": not wire.points or wire.rows is Rows.ONE,
    }
    return [rule for rule, holds in rules.items() if not holds]


@each_dialect
def test_a_server_can_be_asked_whether_it_answers(dialect: Dialect) -> None:
    assert any(can_ask(dialect, each) for each in (dialect.traits.servers.probe, Operation.METADATA)), (
        "encode_request needs words for READY (or LIVE, with the trait `probe`) or METADATA: probes ask for them"
    )


@each_dialect
def test_a_server_can_be_asked_for_a_model(dialect: Dialect) -> None:
    assert can_ask(dialect, Operation.MODEL_READY), (
        "encode_request needs words for MODEL_READY: those for READY or METADATA, if the wire has no others"
    )


def can_ask(dialect: Dialect, operation: Operation) -> bool:
    request = Request(operation, "m")
    return not isinstance(or_error(lambda: dialect.protocol.encode_request(request, dialect.target)), GatewayError)
