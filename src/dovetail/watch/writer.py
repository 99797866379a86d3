"""Writes what a listener hears: a thread and a file for each query, so that no query ever waits for a disk.

Nothing here may fail a query.  What cannot be written is counted and said once, in the log.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail.watch.advice import target_note
from dovetail.watch.files import ProgressFile, first_line
from dovetail.watch.records import Record, record_of

LOGGER = logging.getLogger("dovetail.watch")

MOST_WAITING = 10_000
"""Events that may wait to be written; beyond that micro-batches are left out, and counted."""
_PATIENCE = 5.0
"""Seconds that the last events get to be written."""

Event = tuple[str, str, Mapping[str, Any]]
"""What happened (``start``, ``batch``, ``end``), to which run, and what is known of it."""
PlanOf = Callable[[Mapping[str, Any]], Record]
"""The plan of the join that made a report, as far as anybody knows it: ``{"plan": ..., "target": ...}`` or nothing."""


class RunWriter:
    """Turns events into progress files.

    Parameters
    ----------
    folder
        Where the files go; the state folder by default.
    plan_of
        Finds the plan of a query by its first report with counters.
    """

    def __init__(self, folder: Path | None, plan_of: PlanOf) -> None:
        self._folder = folder
        self._plan_of = plan_of
        self._events: queue.Queue[Event | None] = queue.Queue(MOST_WAITING)
        self._files: dict[str, ProgressFile] = {}
        self._planned: set[str] = set()
        self._notes: dict[str, list[Record]] = {}
        self._lost = 0
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="dovetail-listen", daemon=True)
        self._thread.start()

    def put(self, what: str, run: str, facts: Mapping[str, Any]) -> None:
        """Take an event; never waits."""
        try:
            self._events.put_nowait((what, run, facts))
        except queue.Full:
            self._lost += 1
            if what != "batch":
                self._make_room()
                with suppress(queue.Full):
                    self._events.put_nowait((what, run, facts))

    def _make_room(self) -> None:
        """Leave one event out: a start or an end counts for more than a micro-batch."""
        with suppress(queue.Empty):
            self._events.get_nowait()

    def open_runs(self) -> set[str]:
        """Runs that have begun and not ended, of those whose events are written."""
        return set(self._files)

    def stop(self, ends: Mapping[str, str]) -> None:
        """Write what waits, then the ends of runs that are left, each with the status that `ends` has for it."""
        for run, status in ends.items():
            self.put("end", run, {"status": status})
        with suppress(queue.Full):
            self._events.put(None, timeout=_PATIENCE)
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            self._try(*event)
        # A query that had begun so late that nobody knew of it when the ends were made.
        for run in list(self._files):
            self._try("end", run, {})

    def _try(self, what: str, run: str, facts: Mapping[str, Any]) -> None:
        try:
            self._write(what, run, facts)
        except Exception as error:
            # A full disk, a report of a shape that nobody has seen: the query goes on, and so does this thread.
            said = f"progress of a query could not be written: {first_line(str(error))}"
            self._tell(said, said)

    def _write(self, what: str, run: str, facts: Mapping[str, Any]) -> None:
        if what == "end":
            self._end(run, facts)
            return
        if run not in self._files:
            name = str(facts.get("name") or f"query {str(facts.get('id') or run)[:8]}")
            self._files[run] = ProgressFile(name, "stream", folder=self._folder, run=run, query=facts.get("id"))
        if what == "batch":
            self._batch(run, facts)

    def _batch(self, run: str, report: Mapping[str, Any]) -> None:
        file = self._files[run]
        if run not in self._planned and report.get("observedMetrics"):
            self._planned.add(run)
            plan = self._plan_of(report)
            if plan:
                file.write({"kind": "plan", **plan})
        record = record_of(report)
        if self._lost:
            record["left_out"], self._lost = self._lost, 0
        file.write(record)
        recent = self._notes.setdefault(run, [])
        recent.append(record)
        del recent[:-20]
        note = target_note(file.start.get("target"), recent)
        if note is not None:
            self._tell(f"target {run}", f"{file.start['job']}: {note}")

    def _end(self, run: str, facts: Mapping[str, Any]) -> None:
        file = self._files.pop(run, None)
        self._notes.pop(run, None)
        if file is not None:
            file.status = str(facts.get("status") or "finished")
            error = facts.get("error")
            file.error = first_line(str(error)) if error else None
            file.close()

    def _tell(self, key: str, message: str) -> None:
        """Once for each key: a disk stays full, and a target unmet, for many micro-batches."""
        if key not in self._told:
            self._told.add(key)
            LOGGER.warning(message)
