"""The ports for operators: health and metrics, and the status API."""
