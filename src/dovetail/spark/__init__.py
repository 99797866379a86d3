"""The only folder that imports PySpark."""
