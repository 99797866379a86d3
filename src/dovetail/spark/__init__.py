"""The only folder that imports PySpark."""

from dovetail.spark.runtime.presence import check_pyspark

check_pyspark()
