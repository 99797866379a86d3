"""Aggregates over the matches of each row, without forming the matches."""
