"""What users of Spark, pandas and polars type first: it works, or the message names the argument that it is here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from dovetail.errors import ArgumentError, closest

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

Elsewhere = Mapping[str, tuple[str, str]]
"""Names of arguments elsewhere: what is accepted in their place, and a hint."""

_STRUCTS = "every input comes out as a struct column of its own, so that no two names clash: select('a.*', 'b.price')"

_CONDITION = ("on=, the condition as SQL text or as a Column", "on='a.k = b.k AND a.x < b.y'")
_EQUALITY = ("on=, with the equality of both columns", "on='a.id = b.key' for left_on='id', right_on='key'")
_HOW = ("how=", "how='left', or Spark's own 'left_outer'")
_NAMES = ("nothing in its place", _STRUCTS)
CONDITION: Elsewhere = {
    **dict.fromkeys(("condition", "predicate", "predicates", "join_expr", "where"), _CONDITION),
    **dict.fromkeys(("left_on", "right_on", "left_by", "right_by", "using", "by"), _EQUALITY),
    **dict.fromkeys(("joinType", "join_type", "type"), _HOW),
    **dict.fromkeys(("suffixes", "suffix", "lsuffix", "rsuffix"), _NAMES),
    "tolerance": ("a condition on the difference", "on='ABS(a.x - b.x) <= 5'"),
}
"""Of joins with a condition."""

WINDOW: Elsewhere = {
    **CONDITION,
    "tolerance": ("within=", "within='5 seconds' is the largest distance between the times of a match"),
    "window": ("within=", "within='5 seconds' is the largest distance between the times of a match"),
    "watermark": ("lateness=", "lateness='1 minute', or withWatermark on the streams"),
}

_WATERMARK = ("a watermark on each stream", "frame.withWatermark('ts', '10 seconds')")
_AGG = ("agg=, aggregates by the name of their column", "agg={'n': 'count(*)', 'mean': 'avg(q.price)'}")
AGGREGATE: Elsewhere = {
    **CONDITION,
    **dict.fromkeys(("aggs", "aggregates", "aggregate", "compute"), _AGG),
    **dict.fromkeys(("group_by", "groupBy", "groupby", "keys"), ("by=, the alias of an input", "by='t'")),
    **dict.fromkeys(("window", "tolerance"), ("within=, beside time=", "time='ts', within='10 seconds'")),
    **dict.fromkeys(("watermark", "lateness"), _WATERMARK),
}

_DISTANCE = ("on=, a distance between the inputs", "on='HYPOT(r.x - s.x, r.y - s.y)', or on='ABS(r.ts - s.ts)'")
NEAREST: Elsewhere = {
    **CONDITION,
    **dict.fromkeys(("condition", "distance", "metric", "columns", "coordinates", "order_by"), _DISTANCE),
    **dict.fromkeys(("left_by", "right_by", "using"), ("by=", "by='k', or by={'r': 'k', 's': 'key'}")),
    **dict.fromkeys(("n", "n_neighbors", "n_neighbours", "neighbors", "neighbours", "limit"), ("k=", "k=3")),
    **dict.fromkeys(("tolerance", "max_distance", "radius"), ("within=", "within=500 is the largest distance")),
    **dict.fromkeys(("watermark", "lateness"), _WATERMARK),
}

_INNER = ("inner joins, which need no how=", "sample the inner join")
APPROX: Elsewhere = {**CONDITION, **dict.fromkeys(("how", "joinType", "join_type", "type"), _INNER)}

_CRITERIA = ("on=, a list of criteria", "on=[dt.closest('t'), dt.least('R.cost + S.cost')]")
_WITHIN = ("within= of a criterion", "on=[dt.closest('t', within='5 seconds')]")
BESTMATCH: Elsewhere = {
    **dict.fromkeys(("joinType", "join_type", "type"), _HOW),
    **dict.fromkeys(("suffixes", "suffix", "lsuffix", "rsuffix"), _NAMES),
    **dict.fromkeys(("criteria", "preferences", "condition", "predicate"), _CRITERIA),
    **dict.fromkeys(("tolerance", "within"), _WITHIN),
    **dict.fromkeys(("left_by", "right_by", "left_on", "right_on", "using"), ("by=", "by='k', of both inputs")),
}

_TIMES = ("time=, one name or a name for each alias", "time='ts', or time={'t': 'ts', 'q': 'at'}")
_KEYS = ("by=, names for all inputs or for each alias", "by='k', or by={'t': 'k', 'q': 'key'}")
ASOF: Elsewhere = {
    **dict.fromkeys(("joinType", "join_type", "type"), _HOW),
    **dict.fromkeys(("suffixes", "suffix", "lsuffix", "rsuffix"), _NAMES),
    **dict.fromkeys(("left_on", "right_on", "left_index", "right_index"), _TIMES),
    **dict.fromkeys(("leftAsOfColumn", "rightAsOfColumn"), _TIMES),
    **dict.fromkeys(("left_by", "right_by", "by_left", "by_right", "using"), _KEYS),
    "tolerance": ("within=", "within='10 seconds', or a number where the time columns are numbers"),
    "strategy": ("direction=", "direction='backward', 'forward' or 'nearest'"),
    "allowExactMatches": ("allow_exact_matches=", "allow_exact_matches=False leaves out rows at the same time"),
    "match_condition": ("time= and direction=", "time='ts', and direction='forward' for <="),
}  # fmt: skip


_NEEDED: Elsewhere = {
    "time": _TIMES,
    "within": ("within=, the length of the window", "within='10 seconds'"),
    "memory": ("memory=, rows or bytes", "memory=100_000, or memory='2 GiB'"),
    "by": ("by=, the alias of the input whose rows are kept", "by='t', for aggregates over what each row of t matches"),
    "agg": _AGG,
}
"""Arguments without a default, apart from on=, which says something else in every join."""


def takes_inputs(
    elsewhere: Elsewhere,
    *,
    ordered: Callable[[Mapping[str, Any], tuple[str, ...]], Collection[str]] | None = None,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Make a join explain itself where it is called as a join of another library would be, and carry out ``select=``.

    Its keyword-only parameters are its options; any other keyword is an input.  The join itself never sees `select`: it
    gets inputs without the columns that nobody asked for.  `ordered` tells from the options and the aliases which
    inputs' columns decide between rows that are equally good.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        parameters = inspect.signature(function).parameters.values()
        options = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
        needed = [one.name for one in parameters if one.name in options and one.default is inspect.Parameter.empty]
        name = getattr(function, "__name__", "")

        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            _check_call(name, options, elsewhere, args, kwargs)
            _check_needed(name, needed, elsewhere, kwargs)
            from dovetail.spark.metrics import Call, remember_call
            from dovetail.spark.selection import selected_join

            given: dict[str, Any] = dict(kwargs)
            select, inputs = given.pop("select", None), given.pop("inputs", args[0] if args else None)
            told = {key: given.pop(key) for key in options if key in given}
            join = cast("Callable[..., Any]", function)
            if select is None:
                joined = function(*args, **kwargs)
            else:
                joined = cast("_Result", selected_join(join, inputs, given, told, select, ordered))
            remember_call(cast("Any", joined), Call(name, join, inputs, given, told))
            return joined

        return call

    return decorate


def _check_call(
    name: str, options: Sequence[str], elsewhere: Elsewhere, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    from dovetail.spark.frames import is_frame

    if len(args) > 1:
        raise ArgumentError(
            f"{name} has {len(args)} arguments without a name",
            accepted=f"dt.{name}({{'a': a, 'b': b}}, ...) or dt.{name}(a=a, b=b, ...)",
            hint="give every input the alias that it has in the condition and in the result",
        )
    mapping = bool(args) or kwargs.get("inputs") is not None
    for key, value in kwargs.items():
        if key == "inputs":
            continue
        if key in options:
            if is_frame(value):
                raise ArgumentError(
                    f"{key}= is a {type(value).__name__}, but {key} is an option of {name}",
                    accepted=f"an input called {key!r} in a mapping: dt.{name}({{{key!r}: ..., ...}}, ...)",
                )
        elif is_frame(value):
            if mapping:
                raise ArgumentError(
                    f"{name} has inputs in a mapping, and {key}= is another one",
                    accepted="all inputs in one mapping, or all as keywords",
                )
        elif key in elsewhere:
            accepted, hint = elsewhere[key]
            raise ArgumentError(f"{name} has no argument {key}=", accepted=accepted, hint=hint)
        elif mapping or not isinstance(value, str):
            raise ArgumentError(
                f"{name} has no argument {key}=",
                accepted=f"the options {', '.join(options)}",
                hint=closest(key, options),
            )


def _check_needed(name: str, needed: Sequence[str], elsewhere: Elsewhere, kwargs: Mapping[str, object]) -> None:
    for option in needed:
        if option not in kwargs:
            accepted, hint = elsewhere["condition"] if option == "on" else _NEEDED[option]
            raise ArgumentError(f"{name} needs {option}=", accepted=accepted, hint=hint)
