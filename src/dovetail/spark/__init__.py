"""The only folder that imports PySpark."""

from importlib.util import find_spec

from dovetail.errors import missing_extra

# A driver that spark-submit starts finds the PySpark of its cluster; a worker always has one.
if find_spec("pyspark") is None:
    raise missing_extra(
        "joins need PySpark, which is not installed",
        "pyspark",
        otherwise="run the program with the spark-submit of your Spark, which brings its own",
    )
