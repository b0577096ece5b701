"""Loads that model servers report, for the strategy `least_load`.

- `reported`: The reported loads of one backend's endpoints, with their ages.
- `prometheus`: Parses the samples of a Prometheus page, and computes the load from them: from one gauge, or from
  Triton's metrics. Its code is pure.
- `orca`: Reads the load reports in the replies to calls (ORCA, Open Request Cost Aggregation).
- `pages`: Fetches the servers' metrics pages periodically.
"""
