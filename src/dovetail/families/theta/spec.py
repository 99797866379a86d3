"""What a user says about a theta join, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dovetail.conditions.join_kind import HOWS, How
from dovetail.errors import ArgumentError, check_partitions, choice

Algorithm = Literal["auto", "prefap", "ftj", "cfs", "obt", "rbm"]

ALGORITHMS: tuple[Algorithm, ...] = ("auto", "prefap", "ftj", "cfs", "obt", "rbm")


@dataclass(frozen=True)
class Options:
    """How a theta join is to be run."""

    how: How = "inner"
    algorithm: Algorithm = "auto"
    partitions: int | None = None
    prefilter: bool = True
    amalgamate: bool = True

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        if self.algorithm not in ALGORITHMS:
            raise choice("algorithm", self.algorithm, ALGORITHMS)
        check_partitions(self.partitions)
        for name, value in (("prefilter", self.prefilter), ("amalgamate", self.amalgamate)):
            if value not in (True, False):
                raise ArgumentError(f"{name}={value!r}", accepted="True or False")
        if self.algorithm != "prefap" and not (self.prefilter and self.amalgamate):
            raise ArgumentError(
                f"prefilter= and amalgamate= switch off parts of Prefap, but algorithm={self.algorithm!r}",
                accepted="algorithm='prefap' with either switch",
            )
