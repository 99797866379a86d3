"""``select=`` of every join: only the columns that a call names travel, and the result has what it selects.

Spark cannot look into a Python stage, so it cannot tell that nobody reads a column behind one.  Here the inputs lose
such columns before the join sees them.  An input keeps every column that any argument of the call may mean; what is
selected is then computed on the joined rows, by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dovetail.conditions.mentions import mentioned, stands_alone, texts_of
from dovetail.conditions.names import quoted, readable
from dovetail.conditions.selection import ACCEPTED, Row, read_item, split_items
from dovetail.errors import ArgumentError, DovetailError, PredicateError, listing
from dovetail.plan.selection import SelectedPlan, Travelling
from dovetail.spark.frames import frames_of
from dovetail.spark.joins.conditions import column_text, condition_text, spark_name
from dovetail.spark.metrics import Handle, attach, handle_of

Join = Callable[..., DataFrame]
Ordered = Callable[[Mapping[str, Any], tuple[str, ...]], Collection[str]]
"""The inputs whose columns, from left to right, decide between rows that are equally good, from options and aliases."""


def selected_join(
    join: Join,
    inputs: Mapping[str, DataFrame | str] | None,
    named: Mapping[str, DataFrame | str],
    options: Mapping[str, Any],
    select: object,
    ordered: Ordered | None = None,
) -> DataFrame:
    """The join of the columns that a call names, with what `select` makes of its rows."""
    items = _items(select)
    frames = frames_of(inputs, named)
    options = dict(options)
    if _has_column(options.get("on")):
        # A Column of a frame, frame["x"], is one of the whole frame: it becomes text before columns are left out.
        options["on"] = condition_text(options["on"], frames)
    columns = {alias: frame.columns for alias, frame in frames.items()}
    shown = _shown(items, columns)
    used = mentioned(texts_of(options), columns)
    deciding = ordered(options, tuple(frames)) if ordered is not None else ()
    travelling = {
        alias: _travelling(alias, names, shown[alias], used[alias], deciding) for alias, names in columns.items()
    }
    try:
        joined = join({alias: pruned(frame, travelling[alias].names) for alias, frame in frames.items()}, **options)
    except DovetailError:
        join(frames, **options)  # whose message knows all columns
        raise
    try:
        result = _applied(joined, items, frames, columns, options)
    except DovetailError:
        if not any(isinstance(item, Column) for item in items):
            raise
        # The text of a Column need not show all the names in it.
        travelling = {alias: Travelling(tuple(names), len(names)) for alias, names in columns.items()}
        joined = join(frames, **options)
        result = _applied(joined, items, frames, columns, options)
    _check_names(result.columns)
    handle = handle_of(joined, "select")
    texts = tuple(item if isinstance(item, str) else readable(str(item)[8:-2]) for item in items)
    return attach(result, Handle(SelectedPlan(handle.plan, texts, travelling), handle.recorders))


def pruned(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """A frame with some of its columns; as it is where that are all, or where names are not enough to tell."""
    own = frame.columns
    folded = [name.casefold() for name in own]
    if len(names) == len(own) or any(folded.count(name.casefold()) > 1 for name in names):
        return frame
    return frame.select(*map(quoted, names))


def _items(select: object) -> list[str | Column]:
    """What is selected, item by item: a text is a list as SQL has it."""
    if isinstance(select, str):
        return list(split_items(select))
    if isinstance(select, Column):
        return [select]
    if not isinstance(select, list | tuple) or not select:
        raise ArgumentError(f"select={select!r}", accepted=ACCEPTED)
    for item in select:
        if not isinstance(item, str | Column):
            raise ArgumentError(f"select holds {item!r}", accepted=ACCEPTED)
    return list(select)


def _has_column(on: object) -> bool:
    return isinstance(on, Column) or (isinstance(on, list | tuple) and any(isinstance(one, Column) for one in on))


def _shown(items: Sequence[str | Column], columns: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """The columns of each input that the items read."""
    row = Row(columns, tuple(columns), open=True)
    shown: dict[str, set[str]] = {alias: set() for alias in columns}
    for item in items:
        if isinstance(item, Column):
            for alias, names in mentioned([str(item)], columns).items():
                shown[alias] |= set(columns[alias]) if stands_alone(alias, str(item)) else names
        else:
            for output in read_item(item, row):
                for alias, name in output.uses:
                    shown[alias].add(name)
    return shown


def _travelling(
    alias: str, names: Sequence[str], shown: Collection[str], used: Collection[str], deciding: Collection[str]
) -> Travelling:
    """The columns of an input that travel, in its own order.

    Where columns decide between equally good rows, those in front of the last one that is shown are needed, too: rows
    that agree on these look the same in the result.
    """
    wanted = [name for name in names if name in shown or name in used]
    last = max((at for at, name in enumerate(names) if name in shown), default=-1)
    decides = None
    if alias in deciding and last >= 0:
        before = [name for at, name in enumerate(names) if at <= last or name in wanted]
        decides = f"{alias}.{names[last]}" if len(before) > len(wanted) else None
        wanted = before
    # A row without any column has no form in which it could travel.
    return Travelling(tuple(wanted or names[:1]), len(names), decides)


def _applied(
    joined: DataFrame,
    items: Sequence[str | Column],
    frames: Mapping[str, DataFrame],
    columns: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> DataFrame:
    """What the items make of the joined rows."""
    outputs = [name for name in joined.columns if name in columns]
    how = options.get("how")
    why = f" with how={how!r}" if isinstance(how, str) else ""
    row = Row(columns, outputs, [name for name in joined.columns if name not in columns], why)
    made: list[str | Column] = []
    for item in items:
        made += [item] if isinstance(item, Column) else [output.sql for output in read_item(item, row)]
    try:
        return _selected(joined, made)
    except PySparkException:
        made = [_confirmed(joined, one, frames) for one in made]
    return _selected(joined, made)


def _selected(joined: DataFrame, made: Sequence[str | Column]) -> DataFrame:
    if all(isinstance(one, str) for one in made):
        result = joined.selectExpr(*made)  # type: ignore[arg-type]
    else:
        result = joined.select(*(F.expr(one) if isinstance(one, str) else one for one in made))
    _ = result.columns  # Spark Connect looks at nothing before it is asked
    return result


def _confirmed(joined: DataFrame, one: str | Column, frames: Mapping[str, DataFrame]) -> str | Column:
    """An item that Spark can evaluate; a Column of an input's frame as the text that means the same."""
    try:
        _selected(joined, [one])
    except PySparkException as error:
        complaint = next((line for line in str(error).splitlines() if line.strip()), None)
        if isinstance(one, str):
            raise ArgumentError(
                f"select={readable(one)!r}, which Spark cannot evaluate over the joined row",
                accepted=ACCEPTED,
                hint=complaint,
            ) from error
        try:
            text = column_text(one, frames, "select")
        except PredicateError as refusal:
            raise ArgumentError(
                refusal.given, accepted=ACCEPTED, hint="F.col('t.id').alias('name') is the column id of the input 't'"
            ) from error
        named = f"{text} AS {quoted(spark_name(one, frames))}"
        try:
            _selected(joined, [named])
        except PySparkException:
            return text  # which has the name already
        return named
    return one


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            raise ArgumentError(
                f"select gives two columns named {name!r}",
                accepted="columns whose names differ in more than case",
                hint=f"give one another name, as in 't.{name} AS t_{name}'",
            )
        seen[name.casefold()] = name
    if not names:
        raise ArgumentError("select gives no column", accepted=f"at least one column; {ACCEPTED}", hint=listing(names))
