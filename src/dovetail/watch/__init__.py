"""Watching what runs: progress records, their history, a page of it, and metrics for Prometheus.  Needs no Spark."""
