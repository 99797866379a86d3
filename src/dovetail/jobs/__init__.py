"""Job files: a pipeline in YAML, read and checked without Spark.  ``dovetail run`` runs it."""

from dovetail.jobs.job import Input, Job, Join, Output, Session
from dovetail.jobs.read import read_job

__all__ = ["Input", "Job", "Join", "Output", "Session", "read_job"]
