"""The load that model servers report, for the strategy `least_load`.

- `told`: the loads of one backend's endpoints, with their ages.
- `prometheus`: the samples of a Prometheus page. Pure.
- `triton`: the load in Triton's metrics page; `gauge`: that in any page, from one metric. Pure.
- `orca`: the load reports in replies (ORCA, Open Request Cost Aggregation). Pure.
- `pages`: asks servers for their pages at an interval; `replies`: reads the reports of replies that pass anyway.
"""
