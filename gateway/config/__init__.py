"""The configuration: functions that read one YAML file, and return a Config or a list of all errors in the file. The
commands of `gateway.cli` call them."""

from gateway.config.catalog import Catalog, EndpointAddress
from gateway.config.keys import Config
from gateway.config.loading import load, load_with_warnings, loads, loads_with_warnings, reference_config
from gateway.config.problems import ConfigError, Problem
from gateway.config.schema import json_schema

__all__ = [
    "Catalog",
    "Config",
    "ConfigError",
    "EndpointAddress",
    "Problem",
    "json_schema",
    "load",
    "load_with_warnings",
    "loads",
    "loads_with_warnings",
    "reference_config",
]
