"""The load that model servers report, for the strategy `least_load`.

- `told`: the reported loads of one backend's endpoints, with their ages.
- `prometheus`: the samples of a Prometheus page. Pure.
- `triton`: the load in Triton's metrics page; `gauge`: the load in any page, from one metric. Pure.
- `orca`: the load reports in replies (ORCA, Open Request Cost Aggregation). Pure.
- `pages`: fetches the servers' metrics pages at an interval; `replies`: reads the reports in the replies to calls.
"""
