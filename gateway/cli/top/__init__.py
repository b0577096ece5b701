"""The overview of a running gateway for `gateway top`: it is asked for its counts again and again (`watching`), which
become rates and latencies of the last seconds (`window`) in rows (`rows`), drawn on a terminal (`screen`)."""
