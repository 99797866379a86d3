"""Sessions, Java, and the Python processes that Spark starts."""
