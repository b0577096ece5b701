"""The ports for operators: the health port with the metrics, and the admin port with the status API."""
