"""Cells of stored state: hashes that must stay as they are, or rows would not meet what a checkpoint holds."""

from __future__ import annotations

import numpy as np

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.predicates import parse
from dovetail.families.window.encode import group_codes
from dovetail.families.window.paper.compiled import _bucket
from dovetail.families.window.router import _spread
from dovetail.families.window.spec import build_conditions

ONE = np.array([0, 1, -1, 7, 2**62, -(2**63)])
OTHER = np.array([5, -3, 0, 7, 1, 2**63 - 1])


def test_codes_of_several_classes():
    assert group_codes([ONE, OTHER], 6).tolist() == [
        -5278393320434088484, -621772950581698083, 3703370420611038912,
        8632209307422871798, 3050940584940537958, -5417735806833148549,
    ]  # fmt: skip
    assert group_codes([ONE, OTHER, OTHER[::-1].copy()], 6).tolist() == [
        -8163056095886067769, 2714211986075626845, 3420171538745259180,
        8974507042662256775, -474488385328201803, 9142018890192242673,
    ]  # fmt: skip


def test_spread_codes():
    assert _spread(ONE).tolist() == [
        0, 1728126539969246250, 2277438904142409162, 4111062578180274865, -2767884853069840540, -5535769701844713783,
    ]  # fmt: skip


def test_buckets_of_the_papers_hash_join():
    assert [int(_bucket(int(code), 60)) for code in ONE] == [0, 9, 6, 5, 4, 8]


def test_classes_come_in_the_order_of_their_last_equality():
    on = "A.k = B.k AND A.j = B.j AND B.j = C.j AND B.k = C.k"
    predicate = parse(on, dict.fromkeys("ABC", ("j", "k")))
    kinds = {"k": KeyType("BIGINT", "int"), "j": KeyType("DOUBLE", "float64")}
    typed = [(equality, kinds[equality.left.sql[-2]]) for equality in predicate.equalities]
    found = build_conditions("ABC", typed, [])
    assert [(equal.members, equal.kind) for equal in found.classes] == [((1, 1, 0), "float64"), ((0, 0, 1), "int")]
