"""The operators' ports: health and metrics, and the status API."""
