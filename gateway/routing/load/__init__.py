"""The load that model servers report, for the strategy `least_load`.

- `reported`: The reported loads of one backend's endpoints, with their ages.
- `prometheus`: The samples of a Prometheus page. Its code is pure.
- `triton`: The load in Triton's metrics page. `gauge`: The load in any page, from one metric. Their code is pure.
- `orca`: The load reports in replies (ORCA, Open Request Cost Aggregation). Its code is pure.
- `pages`: Fetches the servers' metrics pages at an interval. `replies`: Reads the reports in the replies to calls.
"""
