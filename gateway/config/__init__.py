"""The configuration: one YAML file to a Config, or every problem of it at once."""

from gateway.config.catalog import Catalog
from gateway.config.loading import load, loads
from gateway.config.models import Config
from gateway.config.options import reference_config
from gateway.config.problems import ConfigError, Problem
from gateway.config.schema import schema

__all__ = ["Catalog", "Config", "ConfigError", "Problem", "load", "loads", "reference_config", "schema"]
