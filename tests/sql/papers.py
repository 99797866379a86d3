"""Every SQL statement that the papers print, adapted in table names and units only.

Each has the paper, the statement, and the Python call that says the same.  Two misprints are corrected: the first
statement of the W-join paper names the alias B twice (its third store is C), and the third selects S1.PacktID, which is
A.PacktID.  Figure 12 of that paper, with the DWINDOW statement, is a picture; the text around it tells what it says.
The best-match paper writes r' and s', which no SQL takes: they are r2 and s2 here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import dovetail as dt


class Printed(NamedTuple):
    paper: str
    sql: str
    tables: tuple[str, ...]
    call: Callable
    """From the tables by name to the frame of the Python call."""
    columns: tuple[str, ...]
    """What the statement selects, as expressions over the frame of the call."""


EVERY = ("R.x1", "R.y1", "R.y2", "S.y1", "S.y2", "S.z1")
NEAR = [dt.closest("y1"), dt.closest("y2")]
ITEMS = "A.ItemNum = B.ItemNum AND B.ItemNum = C.ItemNum"
OBJECTS = "A.ObjID = B.ObjID AND B.ObjID = C.ObjID"
PACKETS = "A.PacktID = B.PacktID AND B.PacktID = C.PacktID"


def _named(t: dict, *names: str) -> dict:
    return dict(zip("ABCD", (t[name] for name in names), strict=False))


def _best(how: str, **limits: float) -> Callable:
    criteria = [dt.closest(name, within=limits.get(name)) for name in ("y1", "y2")]
    return lambda t: dt.bestmatch_join({"R": t["R"], "S": t["S"]}, on=criteria, how=how)


PRINTED = {
    "w-join, form 1": Printed(
        "w-join",
        """SELECT A.ItemName
           FROM Store1 A, Store2 B, Store3 C
           WINDOW = 1 HOUR
           WHERE A.ItemNum=B.ItemNum AND B.ItemNum=C.ItemNum""",
        ("Store1", "Store2", "Store3"),
        lambda t: dt.window_join(_named(t, "Store1", "Store2", "Store3"), on=ITEMS, time="ts", within="1 hour"),
        ("A.ItemName",),
    ),
    "w-join, form 2": Printed(
        "w-join",
        """SELECT A.ObjID FROM Camera1 A, Camera2 B, Camera3 C
           WINDOW (A,B)=5 SECONDS AND WINDOW (B,C)=10 SECONDS AND WINDOW (A,C)=12 SECONDS
           WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID""",
        ("Camera1", "Camera2", "Camera3"),
        lambda t: dt.window_join(
            _named(t, "Camera1", "Camera2", "Camera3"),
            on=OBJECTS,
            time="ts",
            within={("A", "B"): "5 seconds", ("B", "C"): "10 seconds", ("A", "C"): "12 seconds"},
        ),
        ("A.ObjID",),
    ),
    "w-join, form 3": Printed(
        "w-join",
        """SELECT A.PacktID
           FROM Network1 A, Network2 B, Network3 C
           WINDOW (A,B)=200 MILLISECONDS AND WINDOW (B,C)=300 MILLISECONDS
           WHERE A.PacktID=B.PacktID AND B.PacktID=C.PacktID""",
        ("Network1", "Network2", "Network3"),
        lambda t: dt.window_join(
            _named(t, "Network1", "Network2", "Network3"),
            on=PACKETS,
            time="ts",
            within={("A", "B"): "200 ms", ("B", "C"): "300 ms"},
        ),
        ("A.PacktID",),
    ),
    "w-join, path": Printed(
        "w-join",
        """SELECT A.ObjID FROM Camera1 A, Camera2 B, Camera3 C
           DWINDOW (A,B)=5 SECONDS AND DWINDOW (B,C)=10 SECONDS
           WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID""",
        ("Camera1", "Camera2", "Camera3"),
        lambda t: dt.window_join(
            _named(t, "Camera1", "Camera2", "Camera3"),
            on=OBJECTS,
            time="ts",
            within=dt.path("A -> B -> C", ["5 seconds", "10 seconds"]),
        ),
        ("A.ObjID",),
    ),
    "w-join, path and the way back": Printed(
        "w-join",
        """SELECT A.ObjID, A.ts, B.ts, C.ts FROM Camera1 A, Camera2 B, Camera3 C
           DWINDOW (A,B)=5 SECONDS AND DWINDOW (B,C)=10 SECONDS
           WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID
           UNION
           SELECT A.ObjID, A.ts, B.ts, C.ts FROM Camera1 A, Camera2 B, Camera3 C
           DWINDOW (C,B)=10 SECONDS AND DWINDOW (B,A)=5 SECONDS
           WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID""",
        ("Camera1", "Camera2", "Camera3"),
        lambda t: dt.window_join(
            _named(t, "Camera1", "Camera2", "Camera3"),
            on=OBJECTS,
            time="ts",
            within=dt.path("A -> B -> C", ["5 seconds", "10 seconds"], both_ways=True),
        ).dropDuplicates(),
        ("A.ObjID", "A.ts", "B.ts", "C.ts"),
    ),
    "bestmatch, as plain SQL": Printed(
        "bestmatch-join",
        """select      *
           from        R as r, S as s
           where      not exists (
             select    *
             from      R as r2, S as s2
             where     abs(r2.y1 - s2.y1) <= abs(r.y1 - s.y1) and
                       abs(r2.y2 - s2.y2) <= abs(r.y2 - s.y2) and
                       r.y1 <> r2.y1 and r.y2 <> r2.y2 and
                       s.y1 <> s2.y1 and s.y2 <> s2.y2);""",
        ("R", "S"),
        _best("inner"),
        EVERY,
    ),
    "bestmatch": Printed(
        "bestmatch-join",
        "select * from R bestmatch join S on R.y1 minAttrDist S.y1, R.y2 minAttrDist S.y2",
        ("R", "S"),
        _best("inner"),
        EVERY,
    ),
    **{
        f"bestmatch, {how}": Printed(
            "bestmatch-join",
            f"select * from R {how} outer bestmatch join S on R.y1 minAttrDist S.y1, R.y2 minAttrDist S.y2",
            ("R", "S"),
            _best(how),
            EVERY,
        )
        for how in ("left", "right", "full")
    },
    "bestmatch, constrained": Printed(
        "bestmatch-join",
        """select * from R left outer bestmatch join S on R.y1 minAttrDist S.y1, R.y2 minAttrDist S.y2
           where abs(R.y1 - S.y1) <= 4 and abs(R.y2 - S.y2) <= 6""",
        ("R", "S"),
        _best("left", y1=4, y2=6),
        EVERY,
    ),
    "bestmatch, the weather agency": Printed(
        "bestmatch-join",
        """select Temp.v, Hum.v
           from Temp left outer bestmatch join Hum
                on Temp.t minAttrDist Hum.t, Temp.x minAttrDist Hum.x, Temp.y minAttrDist Hum.y
           where abs(Temp.t - Hum.t) <= interval 10 minutes
                 and abs(Temp.x - Hum.x) <= 100 and abs(Temp.y - Hum.y) <= 100""",
        ("Temp", "Hum"),
        lambda t: dt.bestmatch_join(
            {"Temp": t["Temp"], "Hum": t["Hum"]},
            on=[dt.closest("t", within="10 minutes"), dt.closest("x", within=100), dt.closest("y", within=100)],
            how="left",
        ),
        ("Temp.v", "Hum.v"),
    ),
    # Joins that papers state as a formula, without a SELECT around it.
    "prefap, phones and laptops": Printed(
        "prefap-theta-join",
        "SELECT phone.name, laptop.name FROM phone, laptop WHERE phone.price > laptop.price",
        ("phone", "laptop"),
        lambda t: dt.theta_join({"phone": t["phone"], "laptop": t["laptop"]}, on="phone.price > laptop.price"),
        ("phone.name", "laptop.name"),
    ),
    "prefap, three streams": Printed(
        "prefap-theta-join",
        """SELECT p.name, l.name, q.name
           FROM phone p JOIN laptop l ON p.price >= l.price JOIN phone q ON l.price < q.price""",
        ("phone", "laptop"),
        lambda t: dt.theta_join(
            {"p": t["phone"], "l": t["laptop"], "q": t["phone"]}, on="p.price >= l.price AND l.price < q.price"
        ),
        ("p.name", "l.name", "q.name"),
    ),
    "approximate joins": Printed(
        "progressive-approximate-joins",
        "SELECT R.y1, S.y1, sampling.weight FROM R JOIN S ON R.k = S.k WITHIN MEMORY 12 ROWS POLICY raj_hash SEED 7",
        ("R", "S"),
        lambda t: dt.approx_join({"R": t["R"], "S": t["S"]}, on="R.k = S.k", memory=12, policy="raj_hash", seed=7),
        ("R.y1", "S.y1", "sampling.weight"),
    ),
}
