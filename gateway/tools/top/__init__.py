"""`gateway top`, the overview of a running gateway. `watching` polls the gateway's counts, `window` computes the rates
and latencies of the last seconds, and `rows` and `screen` show them as rows on a terminal."""
