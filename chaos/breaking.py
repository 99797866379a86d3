"""Runs queries in a process of their own while something other than a process breaks; and again when it is mended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.killing import PATIENCE, POLL, HungError, batches
from chaos.processes import kill_session
from chaos.verify import Verdict, part_of_answer, verify
from chaos.victim import FAILED, place_of

_BUSY = "Python worker failed to connect back"
_MOST_LIVES = 8
LONG = 3 * PATIENCE
"""Seconds without a micro-batch after which a run counts as hung; a fault may take minutes by itself."""


@dataclass
class Scene:
    """A group of queries, and what a fault may do to them."""

    place: Path
    inputs: Path
    families: tuple[str, ...]
    choice: float = 0.5
    """Decides what a fault hits, where there are several: a part of the way through their list."""
    say: Callable[[str], None] = lambda line: None
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    lives: int = 0
    killed: bool = False
    """Whether the driver was killed, and has not been started since."""
    _victim: subprocess.Popen[bytes] | None = None
    _sessions: list[int] = field(default_factory=list)

    @property
    def work(self) -> Path:
        """Where checkpoints and sinks are."""
        return self.place / "work"

    @property
    def log(self) -> Path:
        """What the driver printed in its last life."""
        return self.place / f"driver{self.lives}.log"

    @property
    def pid(self) -> int:
        """The process of the driver."""
        assert self._victim is not None
        return self._victim.pid

    def start(self) -> None:
        """Start the queries, for the first time or again."""
        self.lives += 1
        self.killed = False
        self.work.mkdir(parents=True, exist_ok=True)
        given = {**os.environ, **self.environment, "CHAOS_SETTINGS": json.dumps(self.settings)}
        command = [sys.executable, "-m", "chaos.victim", str(self.work), str(self.inputs), *self.families]
        with self.log.open("wb") as log:
            self._victim = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=given
            )
        self._sessions.append(self._victim.pid)

    def runs(self) -> bool:
        """Whether the driver is there."""
        return self._victim is not None and self._victim.poll() is None

    def wait_for(self, more: int) -> bool:
        """Wait for so many more micro-batches; False if the driver ends before."""
        wanted = self.batches() + more
        return self._wait(lambda: self.batches() >= wanted)

    def end(self) -> bool:
        """Wait for the end; whether the queries came to theirs."""
        self._wait(lambda: False)
        assert self._victim is not None
        return self._victim.wait() == 0

    def kill(self) -> None:
        """Kill the driver and all that belongs to it."""
        self.killed = True
        if self._victim is not None:
            kill_session(self._victim.pid)
            self._victim.wait()

    def clean(self) -> None:
        """Leave no process behind."""
        for session in self._sessions:
            kill_session(session)
        if self._victim is not None:
            self._victim.wait()

    def batches(self) -> int:
        """Micro-batches that are committed, of all queries."""
        return sum(batches(place_of(self.work, family)) for family in self.families)

    def message(self) -> str:
        """What the queries said when they failed: the words of Spark's that name the cause, in one line."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        found = [line.removeprefix(FAILED).strip() for line in text.splitlines() if line.startswith(FAILED)]
        return re.sub(r"\s+", " ", " | ".join(found))

    def _wait(self, done: Callable[[], bool]) -> bool:
        seen, waited = self.batches(), 0.0
        while not done():
            if not self.runs():
                return False
            now = self.batches()
            if now > seen:
                seen, waited = now, 0.0
            waited += POLL
            if waited > LONG:
                raise HungError(f"no micro-batch for {LONG:.0f} s; see {self.log}")
            time.sleep(POLL)
        return True


class Fault:
    """Something that breaks while queries run.

    One that ends the queries has words that their message must have; what they wrote until then must be right as far
    as it goes, and once the fault is mended they must go on to the whole answer.
    """

    name = ""
    about = ""
    says: str | None = None
    """What the message must match, where the queries fail; None if they must not."""
    must_fail = False
    """Whether going on would be wrong."""

    def lacking(self) -> str | None:
        """Why this machine cannot do it, if so."""
        return None

    def prepare(self, scene: Scene) -> None:
        """Before the first start."""

    def strike(self, scene: Scene) -> None:
        """While the queries run, or between two lives: break it."""
        raise NotImplementedError

    def mend(self, scene: Scene) -> None:
        """When the queries have ended, however: put it right."""

    def clear(self, scene: Scene) -> None:
        """Leave nothing behind."""


@dataclass(frozen=True)
class Outcome:
    """How a group of queries got through a fault."""

    failed: bool
    message: str
    lives: int
    verdicts: Mapping[str, Verdict]
    faults: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and all(verdict.right for verdict in self.verdicts.values())


def break_one(fault: Fault, scene: Scene) -> Outcome:
    """Run a group of queries through a fault, to the right answer."""
    faults: list[str] = []
    message, failed = "", False
    try:
        fault.prepare(scene)
        scene.start()
        while not scene.wait_for(2 * len(scene.families)):
            if not _too_busy(scene):
                raise HungError(f"the queries ended before anything broke; see {scene.log}")
            scene.start()
        fault.strike(scene)
        if scene.killed:
            scene.start()
        failed = not _end(scene)
        if failed:
            message = scene.message()
            scene.say(f"{fault.name}: {message[:300]}")
            faults += _judge_failure(fault, scene, message)
            scene.kill()
            fault.mend(scene)
            scene.start()
            if not _end(scene):
                faults.append(f"failed again after it was mended: {scene.message()[:300]}")
        else:
            fault.mend(scene)
            if fault.must_fail:
                faults.append("went on as if nothing had happened")
        verdicts = {
            family: verify(family, scene.inputs, place_of(scene.work, family) / "out") for family in scene.families
        }
    finally:
        scene.clean()
        fault.clear(scene)
    return Outcome(failed, message, scene.lives, verdicts, tuple(faults))


def _end(scene: Scene) -> bool:
    """Wait for the end of the queries, over lives that a busy machine has cut short."""
    while not scene.end():
        if not _too_busy(scene):
            return False
        scene.start()
    return True


def _too_busy(scene: Scene) -> bool:
    """Whether nothing else failed than Spark's patience with a process that takes ten seconds to start."""
    said = [part for part in scene.message().split(" | ") if part]
    return bool(said) and all(_BUSY in part for part in said) and scene.lives < _MOST_LIVES


def _judge_failure(fault: Fault, scene: Scene, message: str) -> list[str]:
    """What is wrong with a failure: it must not be one, says nothing that helps, or has written what is not so."""
    faults = []
    if fault.says is None:
        faults.append(f"the queries failed: {message[:300]}")
    elif not re.search(fault.says, message, re.IGNORECASE):
        faults.append(f"the message does not say what broke: {message[:300]}")
    for family in scene.families:
        sink = place_of(scene.work, family) / "out"
        faults += [f"{family}, when it failed: {fault}" for fault in part_of_answer(family, scene.inputs, sink)]
    return faults
