"""The SQL dialect: Spark SQL with window, best-match, as-of and bounded-memory joins.  Nothing here knows Spark."""
