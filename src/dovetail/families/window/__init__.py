"""Window joins: rows of n inputs that match and lie within a time window of each other, after W-join and beyond it."""
