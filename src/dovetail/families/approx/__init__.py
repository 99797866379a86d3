"""The approximate join: a bounded-memory sample of a join, the largest or the most representative."""
