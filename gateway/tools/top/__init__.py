"""`gateway top`, the overview of a running gateway: polls the gateway's counts (`watching`), computes the rates and
latencies of the last seconds (`window`), and shows them as rows (`rows`) on a terminal (`screen`)."""
