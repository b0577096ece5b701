"""A part of a configuration that stands in no file: what the options of a command say."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import ReferenceConfig
from gateway.config.messages import flattened, worded
from gateway.config.name_checks import name_findings
from gateway.config.partial import sound_parts
from gateway.config.problems import Finding

_OPTIONS = {"protocol": "--protocol", "bind": "--bind", "models": "--model"}


def reference_config(protocol: str, bind: str, models: Sequence[str], catalog: Catalog) -> ReferenceConfig:
    """An item of `reference:`.

    Raises:
        ValueError: every problem of it, each with its option.
    """
    item = {"protocol": protocol, "bind": bind, "models": list(models)}
    whole, place = {"reference": [item]}, ("reference", 0)
    findings = name_findings(sound_parts(whole), catalog)
    config = None
    try:
        config = ReferenceConfig.model_validate(item)
    except ValidationError as error:
        findings += [worded(each, {}) for each in flattened(error.errors(include_url=False), place)]
    if config is None or findings:
        raise ValueError("\n".join(dict.fromkeys(_told(finding, whole) for finding in findings)))
    return config


def _told(finding: Finding, whole: Any) -> str:
    option = _OPTIONS[str(finding.location[2])]
    return f"{option}: {finding.message.replace(VALUE, repr(_at(finding.location, whole)))}"


def _at(location: Location, whole: Any) -> Any:
    for step in location:
        whole = whole[step]
    return whole
