"""What an approximate join is: the call, checked, and the form in which the kernel knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dovetail.columns.layout import JOIN_VALUE, MIXED, MOMENT, SAMPLE_CELL, STRATUM, WEIGHT, columns_of, input_payload
from dovetail.conditions.comparison import Key, Kind, Step
from dovetail.conditions.limits import MEMORY, Limit
from dovetail.errors import MOST_PARTITIONS, ArgumentError, choice, is_whole

Policy = Literal[
    "exact", "prob", "prob_hash", "arrpj", "raj", "raj_hash",
    "prob_printed", "prob_hash_printed", "raj_printed", "raj_hash_printed",
]  # fmt: skip
Allocation = Literal["fixed", "variable"]
Ties = Literal["random", "oldest"]

PRINTED: tuple[Policy, ...] = ("prob_printed", "prob_hash_printed", "raj_printed", "raj_hash_printed")
"""The paper's algorithms as printed.  They know two inputs, and memory in rows."""
POLICIES: tuple[Policy, ...] = ("exact", "prob", "prob_hash", "arrpj", "raj", "raj_hash", *PRINTED)
ALLOCATIONS: tuple[Allocation, ...] = ("fixed", "variable")
TIES: tuple[Ties, ...] = ("random", "oldest")
SAMPLING: tuple[Policy, ...] = ("exact", "raj", "raj_hash")
"""The policies under which the chance of every result is known, so that a sample represents the complete join."""
GREEDY: tuple[Policy, ...] = ("prob", "prob_hash", "arrpj")
"""The policies that keep the rows that promise most; they know two inputs only."""

CELLS = 16
"""Cells of a join, whatever the session: stored state and a seed's choices depend on the number."""

CELL_ROWS = 64
"""Rows of each input that a cell should at least hold: with less memory there are fewer cells."""

STRATA = 1024
PARTS = 64
"""Sub-reservoirs and queues of a printed algorithm; the paper says nothing of how many it has."""
SLOT_BYTES = 64
"""What a held row costs besides its own bytes, where memory is counted in bytes: its entries in chains and heaps."""
ROW_BYTES = SLOT_BYTES + 16
"""What a row without any column would cost: its hash and its number take 16 bytes."""

FACTS = ("number", "seen", "kept", "arrived")
"""What a result says about each row in it: its number among the rows of its input, and when the result was found: how
many rows of its stratum had arrived, how many of these were held, and how many rows of its input had arrived."""

RETURNED = ("call", "found", "returned")
"""Where the number of results is bounded, what each says about its call: the arrivals before it, how many results it
found, and how many of them it returned."""

FEWEST_RETURNED = 2
"""Results of a cell that are returned at least, if it has as many: from one alone nobody sees how results differ."""

ALL_HELD, UNREPRESENTED = -1, -2
"""In place of a stratum: nothing was left out and nothing will be; or rows were left out for which no held row stands,
so that nobody knows how far a total is off."""


@dataclass(frozen=True)
class Options:
    """How an approximate join is to be run."""

    memory: Limit | None
    policy: Policy = "raj_hash"
    allocation: Allocation = "fixed"
    seed: int = 0
    strata: int | None = None
    partitions: int | None = None
    balance: bool = True
    detail: bool = True
    results: int | None = None
    discard: int = 1
    ties: Ties = "random"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise choice("policy", self.policy, POLICIES)
        if self.allocation not in ALLOCATIONS:
            raise choice("allocation", self.allocation, ALLOCATIONS)
        if self.allocation == "variable" and self.policy not in ("prob", "prob_printed"):
            raise ArgumentError(
                f"allocation='variable' with policy={self.policy!r}",
                accepted="policy='prob' or 'prob_printed' with either allocation; the others decide it themselves",
            )
        if self.memory is None and self.policy != "exact":
            raise ArgumentError("memory=None", accepted=MEMORY, hint="only policy='exact' may hold everything")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not -(2**63) <= self.seed < 2**63:
            raise ArgumentError(f"seed={self.seed!r}", accepted="a whole number of 64 bits, or None for any")
        if self.strata is not None and not is_whole(self.strata):
            raise ArgumentError(f"strata={self.strata!r}", accepted="a whole number of at least 1, or None")
        if self.partitions is not None and not is_whole(self.partitions, most=MOST_PARTITIONS):
            raise ArgumentError(
                f"partitions={self.partitions!r} is not a number of partitions",
                accepted=f"a whole number of at least 1 and at most {MOST_PARTITIONS:,}, or None",
            )
        if self.results is not None and not is_whole(self.results):
            raise ArgumentError(f"results={self.results!r}", accepted="a whole number of at least 1, or None for all")
        if self.strata is not None and self.policy != "raj_hash" and not in_parts(self.policy):
            raise ArgumentError(
                f"strata={self.strata} with policy={self.policy!r}",
                accepted="policy='raj_hash', 'raj_hash_printed' or 'prob_hash_printed'",
            )
        self._check_printed()
        for name, switch in (("balance", self.balance), ("detail", self.detail)):
            if not isinstance(switch, bool):
                raise ArgumentError(f"{name}={switch!r}", accepted="True or False")

    def _check_printed(self) -> None:
        if self.policy in PRINTED and self.memory is not None and self.memory.unit != "rows":
            raise ArgumentError(
                f"memory={str(self.memory)!r} with policy={self.policy!r}",
                accepted="a number of rows: the paper counts rows, whatever their width",
                hint=f"policy={self.policy.removesuffix('_printed')!r} also counts bytes",
            )
        if self.ties not in TIES:
            raise choice("ties", self.ties, TIES)
        if not is_whole(self.discard):
            raise ArgumentError(f"discard={self.discard!r}", accepted="a whole number of at least 1")
        if (self.discard, self.ties) != (1, "random") and self.policy not in ("prob_printed", "prob_hash_printed"):
            given = f"discard={self.discard}" if self.discard != 1 else f"ties={self.ties!r}"
            raise ArgumentError(
                f"{given} with policy={self.policy!r}", accepted="policy='prob_printed' or 'prob_hash_printed'"
            )


@dataclass(frozen=True)
class Edge:
    """Conditions between two inputs beyond the common join value; one gives points, the other boxes."""

    step: Step
    point: int
    box: int


@dataclass(frozen=True)
class ApproxSpec:
    """An approximate join in the form the kernel knows.

    A segment of input `i` has ``payload[i]`` columns, then its key columns ``keys[i]``, the hash of the join value, and
    the position of each row in the order of arrival.  The join value is what every input has in common: for each input
    ``value[i]`` lists the key columns that make it up, and `kinds` says how they are coded.  It is empty for a join on
    bands alone.
    """

    aliases: tuple[str, ...]
    payload: tuple[int, ...]
    keys: tuple[tuple[Key, ...], ...]
    value: tuple[tuple[int, ...], ...]
    kinds: tuple[Kind, ...]
    edges: tuple[Edge, ...]
    policy: Policy
    memory: Limit | None
    allocation: Allocation = "fixed"
    seed: int = 0
    strata: int = 1
    cells: int = 1
    detail: bool = True
    """Whether results carry all that confidence intervals need, or only their weight."""
    results: int | None = None
    """How many results a call may return, all cells together."""
    row_bytes: int = 0
    """What a row of the wider input is expected to take, where memory is counted in bytes."""
    discard: int = 1
    """For priorities as printed: how many rows leave when memory is full, k of DP_X(k)."""
    ties: Ties = "random"
    """For priorities as printed: which of equal ones leaves first."""
    scan: bool = False
    """Look for matches as the paper's Prob and RAJ do, through all rows in memory; the results are the same."""

    @property
    def sides(self) -> int:
        """How many inputs there are."""
        return len(self.aliases)

    @property
    def weighted(self) -> bool:
        """Whether the chance of every result is known."""
        return self.policy in SAMPLING

    def budget(self, cell: int) -> int:
        """A cell's share of the memory, in the limit's unit, where all cells have the same."""
        assert self.memory is not None
        return equal_part(self.memory.amount, cell, self.cells)

    def output_names(self) -> list[str]:
        """Columns that leave the kernel: i0_0 ... for the first input, i1_0 ..., then how the row was sampled."""
        names = [name for side in range(self.sides) for name in columns_of(input_payload(side), self.payload[side])]
        if self.weighted:
            names.append(WEIGHT)
        if self.detail or not self.weighted:
            names += [SAMPLE_CELL, MOMENT]
        if self.weighted and self.detail:
            names += [STRATUM, MIXED, JOIN_VALUE]
            names += [fact_column(fact, side) for side in range(self.sides) for fact in FACTS]
            names += RETURNED if self.results is not None else ()
        return names


def in_parts(policy: Policy) -> bool:
    """Whether a printed algorithm divides its memory by the hash of the join value."""
    return policy in ("prob_hash_printed", "raj_hash_printed")


def default_strata(policy: Policy) -> int:
    """Into how many parts a policy divides join values, if nobody says it."""
    return PARTS if in_parts(policy) else STRATA


def fact_column(fact: str, side: int) -> str:
    """The flat column of one of the `FACTS` about the rows of an input."""
    return f"{fact}{side}"


def equal_part(amount: int, cell: int, cells: int) -> int:
    """A cell's part of an amount that all cells share equally.

    Examples
    --------
    >>> [equal_part(10, cell, 4) for cell in range(4)]
    [2, 3, 2, 3]
    """
    return amount * (cell + 1) // cells - amount * cell // cells


def cell_count(memory: Limit | None, sides: int, wanted: int | None, results: int | None = None) -> int:
    """How many cells share a memory and a number of results: few enough to leave each a useful part.

    Examples
    --------
    >>> cell_count(Limit(10_000), 2, None), cell_count(Limit(500), 2, None), cell_count(Limit(10), 2, None)
    (16, 3, 1)
    """
    if wanted is not None:
        return wanted
    cells = CELLS if results is None else min(CELLS, results // CELL_ROWS)
    if memory is None:
        return max(1, cells)
    row = 1 if memory.unit == "rows" else 4 * SLOT_BYTES
    return max(1, min(cells, memory.amount // (sides * CELL_ROWS * row)))
