"""Says, once, that a target cannot be met because the time goes elsewhere than into joining.

Shedding shortens the joining and nothing else.  Where Spark takes longer than the target to plan, to read, to commit or
to start its tasks, the throttle falls to its lowest, results are lost, and no micro-batch becomes shorter.  Only the
cells know what they were busy with, so they say it, in the log of their process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dovetail.families.shedding.spec import KEEP_UP
from dovetail.reports import unmet_target

LOGGER = logging.getLogger("dovetail.shedding")

_Key = tuple[tuple[str, ...], float]
_KEPT = 5


class UnmetTargets:
    """What the micro-batches of the joins of a process took, of those with a target."""

    def __init__(self) -> None:
        self._batches: dict[_Key, dict[int, tuple[float, float]]] = {}
        self._told: set[_Key] = set()

    def observe(self, aliases: Sequence[str], target: object, call: int, took: float, joined: float) -> str | None:
        """Take in what a cell saw of a micro-batch; gives what to say, if that is now, and once.

        Parameters
        ----------
        aliases, target
            The join, and what ``target=`` says.
        call
            The number of the micro-batch.
        took, joined
            Seconds of it so far, and of joining.
        """
        if target == KEEP_UP or not isinstance(target, int | float):
            return None
        key = (tuple(aliases), float(target))
        if key in self._told:
            return None
        batches = self._batches.setdefault(key, {})
        # Cells of one micro-batch may share this process: it takes as long as the last, and joins for all of them.
        before = batches.get(call, (0.0, 0.0))
        batches[call] = max(before[0], took), before[1] + joined
        for old in sorted(batches)[:-_KEPT]:
            del batches[old]
        # The last one may have cells to come.
        said = unmet_target(float(target), [batches[one] for one in sorted(batches)[:-1]])
        if said is not None:
            self._told.add(key)
            del self._batches[key]
        return said


_OBSERVED = UnmetTargets()


def observe(aliases: Sequence[str], target: object, call: int, took: float, joined: float) -> None:
    """Log once for each join of this process that its target cannot be met; see :class:`UnmetTargets`."""
    said = _OBSERVED.observe(aliases, target, call, took, joined)
    if said is not None:
        LOGGER.warning("join of %s: %s; the page on load shedding says what can", ", ".join(aliases), said)
