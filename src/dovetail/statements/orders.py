"""Orders of best-match joins by name: those that the dialect knows, and those that a user registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dovetail.conditions.clauses import Clauses, Span
from dovetail.conditions.criteria import Criterion, PairOfRows, closest, least, most, overlap, prefer, youngest
from dovetail.conditions.tokens import Item, read
from dovetail.errors import ArgumentError, PredicateError
from dovetail.errors import closest as nearest_name

Values: TypeAlias = tuple[Any, Any]
"""The two values of a pair: that of the left column and that of the right one."""
Judge: TypeAlias = Callable[[Values, Values], str | None]

BUILT_IN = ("minAttrDist", "subset", "youngest")


@dataclass(frozen=True)
class Order:
    """A registered order: a Python function, or an expression of which the smallest or largest value is best."""

    name: str
    judge: Judge | None
    items: tuple[Item, ...]
    largest: bool


@dataclass(frozen=True)
class Column:
    """An operand of an order: an input of the join, a column of it, and its spelling in SQL."""

    alias: str
    name: str
    sql: str


@dataclass(frozen=True)
class OnColumns:
    """A registered function of two values, applied to pairs of rows."""

    order: Order
    left: Column
    right: Column

    @property
    def __name__(self) -> str:
        return f"{self.left.alias}.{self.left.name} {self.order.name} {self.right.alias}.{self.right.name}"

    def __call__(self, p: PairOfRows, q: PairOfRows) -> str | None:
        """Compare two pairs by the values of the two columns."""
        if self.order.judge is None:
            raise TypeError(f"{self.order.name} is an expression, not a function")
        one, other = (
            (pair[self.left.alias][self.left.name], pair[self.right.alias][self.right.name]) for pair in (p, q)
        )
        return self.order.judge(one, other)


_registered: dict[str, Order] = {}


def register_order(name: str, order: Judge | str, *, largest: bool = False) -> None:
    """Register an order of your own under a name that SQL can use: ``ON R.x name S.y``.

    Parameters
    ----------
    name : str
        A word.  A name that is registered already gets the new meaning.
    order : str or callable
        An expression of Spark SQL over ``a``, the left value, and ``b``, the right one, of which the smaller value is
        better.  Or a Python function that compares two pairs, each given as ``(left value, right value)``: it returns
        ``"better"`` if the first is better than the second, ``"worse"``, ``"equal"``, or ``"incomparable"``.
    largest : bool, default False
        For an expression: whether the larger value is better.

    Raises
    ------
    ArgumentError
        If the name is no word or belongs to the dialect, or the order is neither text nor a function.
    PredicateError
        If the expression cannot be read, or does not use both values.

    See Also
    --------
    sql : Statements with ``BESTMATCH JOIN``, which use the order.
    prefer : The same as a criterion of :func:`bestmatch_join`.

    Notes
    -----
    Spark and the kernels evaluate expressions.  A function runs in Python, on the pairs that the other criteria do not
    decide.

    Examples
    --------
    >>> register_order("relativeDistance", "abs(a - b) / a")
    >>> def same_first(p, q):
    ...     same = [left == right for left, right in (p, q)]
    ...     return "equal" if same[0] == same[1] else "better" if same[0] else "worse"
    >>> register_order("sameFirst", same_first)
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"the order {name!r}", accepted="a word, such as 'relativeDistance'")
    if name.casefold() in {word.casefold() for word in BUILT_IN}:
        raise ArgumentError(f"the order {name!r} exists already", accepted=f"a name besides {', '.join(BUILT_IN)}")
    if not isinstance(largest, bool):
        raise ArgumentError(f"largest={largest!r}", accepted="True or False")
    if callable(order):
        if largest:
            raise ArgumentError(
                "largest=True with a function", accepted="a function that answers 'better' for the better pair"
            )
        _registered[name.casefold()] = Order(name, order, (), largest=False)
        return
    if not isinstance(order, str):
        raise ArgumentError(f"the order {order!r}", accepted="a function of two pairs, or SQL over a and b")
    items = read(order, {"left": ["a"], "right": ["b"]})
    if {item.alias for item in items} - {None} != {"left", "right"}:
        raise PredicateError(f"the order {order!r} does not use both values", accepted="an expression over a and b")
    _registered[name.casefold()] = Order(name, None, tuple(items), largest)


def criterion(name: str, left: Column, right: Column, within: Any = None) -> Criterion | None:
    """The criterion that an order makes of two columns; None where the name is unknown."""
    folded = name.casefold()
    if folded == "minattrdist":
        return closest(left.name, right.name, within=within)
    if folded == "subset":
        return overlap(left.name, right.name)
    if folded == "youngest":
        return youngest(left.name, right.name)
    order = _registered.get(folded)
    if order is None:
        return None
    if order.judge is not None:
        return prefer(OnColumns(order, left, right))
    spelled = {"left": left.sql, "right": right.sql}
    items = [item if item.alias is None else item._replace(sql=spelled[item.alias]) for item in order.items]
    sql = Clauses(items).sql(Span(0, len(items)))
    return most(sql) if order.largest else least(sql)


def known() -> tuple[str, str]:
    """What to write instead of an unknown order, and where to look."""
    names = [*BUILT_IN, *(order.name for order in _registered.values())]
    return f"one of {', '.join(names)}", "register your own with dt.register_order(name, function or expression)"


def similar(name: str) -> str | None:
    """The nearest spelling among the names that exist."""
    return nearest_name(name, [*BUILT_IN, *(order.name for order in _registered.values())])
