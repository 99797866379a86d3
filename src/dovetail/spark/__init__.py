"""The only folder that imports PySpark."""

from dovetail.spark.runtime.versions import check_version

check_version()
