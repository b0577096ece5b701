"""`models:`: models that the gateway builds from other models. The keys come from `gateway.bridge.graphs.graph`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gateway.bridge.graphs.graph import Graph, GraphKeys, Scalar, StepKeys, make_graph
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.settings import Derivatives
from gateway.config.declared import Declared
from gateway.config.fields import Name, Names, Size, Written, refusal
from gateway.config.routes import FiniteDifferences

_Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
_Scalar = Annotated[bool, Strict()] | Annotated[int, Strict()] | _Number | Annotated[str, Strict()]


class _StepOrValue:
    """Annotation for a step. A map with the key `model` is a StepKeys; anything else is a value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(item: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
            return validate(item) if isinstance(item, dict) and "model" in item else item

        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {}]}


_FORMS: dict[Any, Any] = {
    str: Annotated[str, Strict()],
    int: Size,
    float: _Number,
    object: Any,
    Scalar | None: _Scalar | None,
    Derivatives: FiniteDifferences,
    tuple[str, ...]: Names,
    Mapping[str, object]: Mapping[Name, Any],
    Mapping[str, str]: Mapping[Name, Annotated[str, Strict()]],
    Mapping[str, Scalar]: Mapping[Name, _Scalar],
}
_STEP: Any = Annotated[StepKeys, Declared(StepKeys, _FORMS, {}), _StepOrValue()]
_FORMS[Mapping[str, StepKeys | object]] = Mapping[Name, _STEP]


def _graphs(models: Mapping[str, GraphKeys]) -> Mapping[str, Graph]:
    return {name: _graph(name, keys) for name, keys in models.items()}


def _graph(name: str, keys: GraphKeys) -> Graph:
    if not set(name).isdisjoint("*?["):
        raise refusal("a model name cannot contain * ? [; use another name", name)
    try:
        return make_graph(name, keys)
    except GraphError as error:
        raise refusal(error.message, name, *error.place) from error


_KEYS: Any = Annotated[GraphKeys, Declared(GraphKeys, _FORMS, {})]
Graphs = Annotated[Mapping[str, Graph], Written(Mapping[Name, _KEYS], _graphs)]
"""Graphs by name."""
