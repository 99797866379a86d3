"""Runs queries in a process of their own, kills parts of it by a plan made from a seed, and starts it again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos.processes import Kind, find, kill, kill_session
from chaos.victim import place_of

POLL = 0.05
PATIENCE = 240.0
"""Seconds of waiting for a micro-batch after which a run counts as hung.  While the machine stops us, nothing waits."""
_MIX: tuple[Kind, ...] = ("driver", "executor", "worker", "worker", "executor")
"""A driver takes long to restart, so it is killed least often."""


class HungError(Exception):
    """No micro-batch for too long, or a driver that fails again and again."""


@dataclass(frozen=True)
class Blow:
    """One kill of the plan: after so many more micro-batches and so many seconds, a process of this kind."""

    kind: Kind
    batches: int
    seconds: float
    choice: float
    """Which of several processes: a part of the way through their list."""


def plan(seed: int, group: int, blows: int) -> list[Blow]:
    """The kills of one group of queries; the same for the same seed.

    Examples
    --------
    >>> plan(7, 0, 6) == plan(7, 0, 6)
    True
    >>> sorted({blow.kind for blow in plan(7, 0, 3)})
    ['driver', 'executor', 'worker']
    """
    draw = random.Random(f"{seed}/{group}")
    kinds = [_MIX[at % len(_MIX)] for at in range(blows)]
    draw.shuffle(kinds)
    return [Blow(kind, draw.randint(1, 4), draw.uniform(0.0, 1.5), draw.random()) for kind in kinds]


@dataclass
class Hunt:
    """One group of queries under fire."""

    place: Path
    inputs: Path
    families: tuple[str, ...]
    say: Callable[[str], None] = lambda line: None
    program: str = "chaos.victim"
    """The module that is run, with the words of `chaos.victim`."""
    kills: Counter[Kind] = field(default_factory=Counter)
    amid: Counter[str] = field(default_factory=Counter)
    """For each family the kills that hit a micro-batch of its own which had begun and was not committed."""
    starts: int = 0
    failures: int = 0
    """Starts that ended with an error of the query, not by our kill."""
    _sessions: list[int] = field(default_factory=list)

    def run(self, blows: list[Blow]) -> None:
        """Run the queries to their end, with these kills on the way; they end early if the input does."""
        self.place.mkdir(parents=True, exist_ok=True)
        left = iter(blows)
        while not self._attempt(left):
            if self.failures > 5:
                raise HungError(f"the driver failed {self.failures} times; see {self.place}/driver.log")

    def _attempt(self, left: Iterator[Blow]) -> bool:
        """One life of the driver; whether it ended well."""
        self.starts += 1
        command = [sys.executable, "-m", self.program, str(self.place), str(self.inputs), *self.families]
        with (self.place / "driver.log").open("ab") as log:
            victim = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return self._hunt(victim, left)
        finally:
            if victim.poll() is None:
                victim.kill()
            victim.wait()
            # Executors find out by themselves that their driver is gone, and may still be writing until then: that is
            # left to them while the next driver starts.  After the last one nothing may stay behind.
            self._sessions.append(victim.pid)

    def clean(self) -> None:
        """Kill what is left of all lives of the driver."""
        for session in self._sessions:
            kill_session(session)

    def _hunt(self, victim: subprocess.Popen[bytes], left: Iterator[Blow]) -> bool:
        for blow in left:
            wanted = self.batches() + blow.batches
            if not self._wait(victim, lambda wanted=wanted: self.batches() >= wanted):
                return self._ended(victim)
            time.sleep(blow.seconds)
            if not self._strike(victim, blow):
                return self._ended(victim)
            if blow.kind == "driver":
                return False
        self._wait(victim, lambda: False)
        return self._ended(victim)

    def _ended(self, victim: subprocess.Popen[bytes]) -> bool:
        if victim.wait() == 0:
            return True
        self.failures += 1
        self.say(f"the driver ended with {victim.returncode}")
        return False

    def _wait(self, victim: subprocess.Popen[bytes], done: Callable[[], bool]) -> bool:
        """Wait until `done`; False if the driver has ended before."""
        seen, waited = self.batches(), 0.0
        while not done():
            if victim.poll() is not None:
                return False
            if self.batches() > seen:
                seen, waited = self.batches(), 0.0
            waited += POLL
            if waited > PATIENCE:
                raise HungError(f"no micro-batch for {PATIENCE:.0f} s; see {self.place}/driver.log")
            time.sleep(POLL)
        return True

    def _strike(self, victim: subprocess.Popen[bytes], blow: Blow) -> bool:
        """Kill; False if the driver has ended before there was anything to kill."""
        while victim.poll() is None:
            found = find(victim.pid, blow.kind)
            if not found:
                time.sleep(POLL)
                continue
            begun = [family for family in self.families if self._is_amid(family)]
            pid = found[int(blow.choice * len(found))]
            if kill(pid):
                if blow.kind == "driver":
                    victim.kill()
                self.kills[blow.kind] += 1
                self.amid.update(begun)
                self.say(
                    f"killed {blow.kind} {pid}, amid a micro-batch of {len(begun)} of {len(self.families)} queries"
                )
                return True
        return False

    def batches(self) -> int:
        """Micro-batches that are committed, of all queries."""
        return sum(batches(place_of(self.place, family)) for family in self.families)

    def _is_amid(self, family: str) -> bool:
        own = place_of(self.place, family) / "checkpoint"
        return _last(own / "offsets") > _last(own / "commits")


def batches(place: Path) -> int:
    """Micro-batches that a query has committed."""
    return _last(place / "checkpoint" / "commits") + 1


def _last(log: Path) -> int:
    return max((int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit()), default=-1)
