"""The loads that model servers report, for the strategy `least_load`.

- `reported`: The reported loads of one backend's endpoints, with their ages.
- `prometheus`: Parses the samples of a Prometheus page. Its code is pure.
- `triton`: Computes the load from Triton's metrics page. `gauge`: Reads the load from one metric in any page. Their
  code is pure.
- `orca`: Parses the load reports in replies (ORCA, Open Request Cost Aggregation). Its code is pure.
- `pages`: Fetches the servers' metrics pages periodically. `replies`: Reads the reports in the replies to calls.
"""
