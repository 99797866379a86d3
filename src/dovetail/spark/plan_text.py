"""What `explain` prints: the plan of a join, what its rows carry, and how even its work was."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.plan.prediction import compared
from dovetail.plan.selection import SelectedPlan, inserted, memory_line, wide_line
from dovetail.plan.sql import StatementPlan
from dovetail.spark.counters import balance_lines, split_lines
from dovetail.spark.metrics import handle_of, metrics
from dovetail.spark.prediction import predict

_WORKER_MEMORY = "spark.executor.pyspark.memory"


def plan_text(frame: DataFrame) -> str:
    """What a join will do, in words, with lines about inputs whose rows are wide and about a limit of memory."""
    plan = handle_of(frame, "explain").plan
    wide = wide_line(
        {
            field.name: len(field.dataType.fields)
            for field in frame.schema.fields
            if isinstance(field.dataType, T.StructType) and field.name in plan.inputs
        }
    )
    lines = [wide] if wide is not None and not isinstance(plan, SelectedPlan | StatementPlan) else []
    limit = memory_line(plan, frame.sparkSession.conf.get(_WORKER_MEMORY, None))
    if limit is not None and not isinstance(plan, StatementPlan):
        lines.append(limit)
    return inserted(plan.text(), lines) if lines else plan.text()


def measured_text(frame: DataFrame) -> str:
    """How a batch join that has run divided its work, as further lines of its plan."""
    found = metrics(frame)
    steps = {"measured": found} if "kernel_ms" in found else {k: v for k, v in found.items() if isinstance(v, dict)}
    lines = [
        f"  {name:<10}  {line}"
        for name, counts in steps.items()
        for line in [*balance_lines(counts), *split_lines(counts)]
    ]
    if "predicted_results" in found and "results" in found:
        lines.append(f"  {'measured':<10}  {compared(found['results'], found)}")
    return "".join(f"\n{line}" for line in lines)


def predicted_text(frame: DataFrame) -> str:
    """What samples of its inputs predict for a batch join, as further lines of its plan.  Runs jobs."""
    return "".join(f"\n  {'predicted':<10}  {line}" for line in predict(frame).lines())
