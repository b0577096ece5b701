"""`gateway schema`: the JSON Schema of a configuration."""

import json

from gateway.cli.options import catalog
from gateway.config import json_schema


def schema() -> None:
    """Print the JSON Schema of a configuration. Editors use the schema to complete and check the YAML file."""
    print(json.dumps(json_schema(catalog()), indent=2))
