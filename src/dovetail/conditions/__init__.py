"""Join conditions: SQL text to what a join compares, without Spark and without data."""
