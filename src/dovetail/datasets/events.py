"""Generated events: packets in networks, news items of agencies, people who look for projects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.datasets.tables import _MONDAY, _TIMES, _check

_SECOND = 1_000_000
_SKILLS = np.array(["python", "sql", "spark", "scala", "kafka", "statistics", "design", "testing", "cloud", "writing"])
_TOPICS = ("election", "storm", "match", "merger", "launch", "strike", "festival", "verdict")


def network_packets(
    batches: int = 4, packets: int = 1000, *, seconds: int = 10, seed: int = 7
) -> Iterator[tuple[pa.Table, pa.Table, pa.Table]]:
    """Batches of packets as three networks see them, each with columns ``packet`` (a hash), ``bytes`` and ``ts``.

    A batch is `seconds` of time.  Half of the packets pass one network only, the others all three, with 50 to 400
    milliseconds between one network and the next.

    Examples
    --------
    >>> [first.num_rows > third.num_rows for first, _, third in network_packets(2, 100)]
    [True, True]
    """
    for name, value in (("batches", batches), ("packets", packets), ("seconds", seconds)):
        _check(name, value)
    random = np.random.default_rng(seed)
    later: list[npt.NDArray[np.int64]] = [np.empty((3, 0), dtype=np.int64) for _ in range(3)]
    for batch in range(batches):
        opens = int(_MONDAY.astype(np.int64)) + batch * seconds * _SECOND
        packet = random.integers(0, 2**62, packets)
        size = random.choice([64, 128, 576, 1500], packets, p=[0.4, 0.2, 0.1, 0.3])
        ts = opens + random.integers(0, seconds * _SECOND, packets)
        on = random.random(packets) < 0.5
        tables = []
        for network in range(3):
            rows = np.concatenate([later[network], np.stack([packet, size, ts])], axis=1)
            # The last batch takes what is still under way.
            due = (rows[2] < opens + seconds * _SECOND) | (batch == batches - 1)
            later[network] = rows[:, ~due]
            rows = rows[:, due][:, np.argsort(rows[2, due], kind="stable")]
            columns = {"packet": rows[0], "bytes": pa.array(rows[1], pa.int32()), "ts": pa.array(rows[2], _TIMES)}
            tables.append(pa.table(columns))
            if network == 0:
                packet, size, ts = packet[on], size[on], ts[on]
            ts = ts + random.integers(50_000, 400_000, ts.size)
        yield tables[0], tables[1], tables[2]


def news_items(
    batches: int = 4, items: int = 500, *, seconds: int = 10, burst: int = 5, seed: int = 7
) -> Iterator[tuple[pa.Table, pa.Table, pa.Table]]:
    """Batches of what three news agencies report, each with columns ``headline``, ``v`` (what it is about) and ``ts``.

    A batch is `seconds` of time.  Items on the same event have values ``v`` within 1 of each other, and the second and
    third agency report it a while after the first.  The batches in the middle third bring `burst` times as many items.

    Examples
    --------
    >>> [first.num_rows for first, _, _ in news_items(3, 100)]
    [100, 500, 100]
    """
    for name, value in (("batches", batches), ("items", items), ("seconds", seconds), ("burst", burst)):
        _check(name, value)
    random = np.random.default_rng(seed)
    for batch in range(batches):
        busy = batches // 3 <= batch < -(-2 * batches // 3) and batches > 2
        rows = items * (burst if busy else 1)
        opens = int(_MONDAY.astype(np.int64)) + batch * seconds * _SECOND
        about = np.round(random.uniform(0, 20 * items, rows), 2)
        when = np.sort(random.uniform(0, 1, rows))
        tables = []
        for agency in range(3):
            # Each agency reports a part of the events, and adds items of its own.
            own = random.random(rows) < 0.6
            v = np.round(np.where(own, random.uniform(0, 20 * items, rows), about + random.normal(0, 0.3, rows)), 2)
            late = np.minimum(when + agency * random.exponential(0.05, rows), 0.999_999)
            order = np.argsort(late, kind="stable")
            ts = opens + (late[order] * seconds * _SECOND).astype(np.int64)
            topics = np.array(_TOPICS)[(np.abs(v[order]).astype(np.int64)) % len(_TOPICS)]
            headline = np.char.add(np.char.add(topics, " "), np.round(v[order]).astype(np.int64).astype(str))
            tables.append(pa.table({"headline": headline, "v": v[order], "ts": pa.array(ts, _TIMES)}))
        yield tables[0], tables[1], tables[2]


def seekers_and_projects(seekers: int = 60, projects: int = 40, *, seed: int = 7) -> tuple[pa.Table, pa.Table]:
    """People who look for projects, and projects that look for people.

    Seekers have the columns ``name``, ``skills`` (an array), ``rate`` and ``free_from``; projects have ``title``,
    ``needs`` (an array), ``budget`` and ``begins``.

    Examples
    --------
    >>> seekers, projects = seekers_and_projects(3, 2)
    >>> seekers.column_names, projects["needs"].type
    (['name', 'skills', 'rate', 'free_from'], ListType(list<item: string>))
    """
    _check("seekers", seekers)
    _check("projects", projects)
    random = np.random.default_rng(seed)
    return (
        _market(random, seekers, ("name", "skills", "rate", "free_from"), "S"),
        _market(random, projects, ("title", "needs", "budget", "begins"), "P"),
    )


def _market(random: np.random.Generator, rows: int, names: tuple[str, str, str, str], letter: str) -> pa.Table:
    skills = [sorted(random.choice(_SKILLS, random.integers(2, 6), replace=False).tolist()) for _ in range(rows)]
    first = _MONDAY.astype("datetime64[D]") + random.integers(0, 90, rows)
    columns = [
        pa.array([f"{letter}{number}" for number in range(1, rows + 1)]),
        pa.array(skills, pa.list_(pa.string())),
        pa.array(random.integers(40, 140, rows) * 5, pa.int32()),
        pa.array(first, pa.date32()),
    ]
    return pa.table(dict(zip(names, columns, strict=True)))
