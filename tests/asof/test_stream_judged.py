"""As-of joins of streams whose pairs have still to be judged, against the nested loop."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.columns.layout import VERDICT
from dovetail.columns.segments import pack, unpack
from dovetail.columns.structs import nest
from dovetail.families.asof import stream_judged
from dovetail.families.asof.judged import CandidateStage, FinishStage
from dovetail.families.asof.spec import LEFT, RIGHT
from dovetail.families.asof.stream_judged import CandidateKernel

from .harness import WHERE, pair_of, wheres
from .test_stream import histories, in_time, next_watermark


def judged(case, found: pa.RecordBatch) -> pa.RecordBatch:
    """Candidates with the verdicts that Spark would give."""
    verdicts = []
    for row in found.to_pylist():
        left = {name: row[f"c{at}"] for at, name in enumerate(case.left.column_names)}
        right = {name: row[f"d{at}"] for at, name in enumerate(case.right.column_names)}
        pair = row["b"] and row["p0"]
        verdicts.append(bool(pair and all(WHERE[name].meaning(left, right) for name in case.where)))
    return found.append_column(VERDICT, pa.array(verdicts, pa.bool_()))


@given(histories(), wheres, st.integers(1, 5))
@settings(max_examples=80)
def test_any_cut_any_restart_any_disorder(history, where, most):
    case, batches, delay = history
    case = case.replace(where=where, how=case.how if case.how not in ("right", "full") else "left")
    if case.within is None:
        case = case.replace(within=7)
    spec = case.replace(where=(), judged=True).spec()
    state: dict[str, bytes] = {}
    seen: tuple[list[int], list[int]] = ([], [])
    taken: list[list[pa.Table]] = [[case.left.slice(0, 0)], [case.right.slice(0, 0)]]
    found: Counter = Counter()
    watermark = None
    nothing = (case.left.slice(0, 0), case.right.slice(0, 0))
    for number, batch in enumerate([*batches, nothing]):
        kernel = CandidateKernel(CandidateStage(spec))
        kernel.restore({name: unpack(segment) for name, segment in state.items()}, watermark)
        for side in (LEFT, RIGHT):
            kept = in_time(batch[side], watermark)
            taken[side].append(kept)
            seen[side].extend(t for t in batch[side]["t"].to_pylist() if t is not None)
            for rows in batch[side].to_batches():
                kernel.push(side, rows)
        if number == len(batches):
            kernel.end()
        with patch.object(stream_judged, "MOST_PAIRS", most):
            pairs = [judged(case, rows) for rows in kernel.results()]
        for rows in FinishStage(spec)(pairs):
            found.update(pair_of(row["l"], row.get("r")) for row in nest(rows, case.shape()).to_pylist())
        changes = kernel.changes()
        for name in changes.dropped:
            del state[name]
        state.update({name: pack(rows).to_pybytes() for name, rows in changes.stored.items()})
        reached = next_watermark(seen, delay)
        watermark = reached if watermark is None else max(watermark, reached or watermark)
    assert not state
    assert found == case.replace(left=pa.concat_tables(taken[LEFT]), right=pa.concat_tables(taken[RIGHT])).expected()
