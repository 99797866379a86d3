"""Python imports this when it starts, where the tests begin a JVM: its workers find PySpark with its byte code.

Spark puts ``pyspark.zip`` first, from which Python compiles the sources in every process: 0.8 s for the one that
prepares a stateful operator, at each start of a stream.
"""

import sys

sys.path.sort(key=lambda place: place.endswith("pyspark.zip"))
