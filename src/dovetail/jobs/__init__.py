"""Job files: a pipeline in YAML, read and checked without Spark.  ``dovetail run`` runs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dovetail.errors import missing_extra

if TYPE_CHECKING:
    from dovetail.jobs.job import Input, Job, Join, Output, Session
    from dovetail.jobs.read import read_job

__all__ = ["Input", "Job", "Join", "Output", "Session", "read_job"]


def __getattr__(name: str) -> object:
    """A public name, loaded when first asked for: plots read progress files, which need none of these packages."""
    if name not in __all__:
        raise AttributeError(f"module 'dovetail.jobs' has no attribute {name!r}")
    try:
        home = importlib.import_module("dovetail.jobs.read" if name == "read_job" else "dovetail.jobs.job")
    except ModuleNotFoundError as error:
        if error.name not in ("pydantic", "yaml"):
            raise
        raise missing_extra("job files need pydantic and PyYAML, which are not installed", "cli") from None
    found: object = getattr(home, name)
    globals()[name] = found
    return found
