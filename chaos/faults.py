"""What can break besides processes: disks, state files, clocks, inputs, and processes that hang or are too large."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

import psutil

from chaos.breaking import Fault, Scene
from chaos.killing import batches
from chaos.processes import find, kill
from chaos.victim import place_of

_SMALL = "192m"
"""The size of a disk that is filled on purpose."""
_HELD = 120.0
"""Seconds that a disk stays full unless the queries fail before, and that nothing lets a worker live."""
_SLOW = 60.0
_HANG = 60.0


class _FullDisk(Fault):
    """A small disk, which something else fills for a while."""

    says = "No space left on device|disk is full"

    def lacking(self) -> str | None:
        """A disk of its own needs the right to mount one."""
        return None if os.geteuid() == 0 and shutil.which("mount") else "only root can mount a small disk"

    def disk(self, scene: Scene) -> Path:
        """Where the disk is."""
        return scene.place / "disk"

    def prepare(self, scene: Scene) -> None:
        """Mount it."""
        disk = self.disk(scene)
        disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL}", "tmpfs", str(disk)], check=True)

    def strike(self, scene: Scene) -> None:
        """Fill it, to the last byte, until the queries have ended or so many seconds have passed."""
        deadline = time.monotonic() + _HELD
        with (self.disk(scene) / "filler").open("wb", buffering=0) as filler:
            while scene.runs() and time.monotonic() < deadline:
                # Whatever the queries free is taken again.
                with contextlib.suppress(OSError):
                    while filler.write(b"\0" * 65536):
                        pass
                time.sleep(0.02)
        # A query that survived that long gets its space back; one that failed gets it back when it is mended.
        if scene.runs():
            self.mend(scene)

    def mend(self, scene: Scene) -> None:
        """Give the space back."""
        (self.disk(scene) / "filler").unlink(missing_ok=True)

    def clear(self, scene: Scene) -> None:
        """Unmount it."""
        if self.disk(scene).exists():
            subprocess.run(["umount", "--lazy", str(self.disk(scene))], check=False)


class FullCheckpoint(_FullDisk):
    """Checkpoints and sinks on a disk that is full."""

    name = "checkpoint-full"
    about = "no space left for checkpoint and output, for two minutes or until the queries fail"

    def disk(self, scene: Scene) -> Path:
        """Where checkpoints and sinks are."""
        return scene.work


class FullShuffle(_FullDisk):
    """Spark's folder for shuffles and spills on a disk that is full."""

    name = "shuffle-full"
    about = "no space left for shuffles, spills and working state, for two minutes or until the queries fail"

    def prepare(self, scene: Scene) -> None:
        """Mount it, and tell Spark and the workers."""
        super().prepare(scene)
        scene.settings["spark.local.dir"] = str(self.disk(scene))
        scene.environment["SPARK_LOCAL_DIRS"] = str(self.disk(scene))


class _BrokenState(Fault):
    """The newest files of every query's state, when its driver has died."""

    says = r"state|\.zip|\.sst|\.changelog|checksum|corrupt|does not exist|FileNotFound"
    must_fail = True

    def strike(self, scene: Scene) -> None:
        """Kill the driver, and damage one file of each query's last committed version."""
        scene.kill()
        for family in scene.families:
            for file in _newest(place_of(scene.work, family) / "checkpoint", scene.choice):
                shutil.copy2(file, _aside(file))
                self.damage(file)
                _forget_checksum(file)
                scene.say(f"{self.name}: {file.relative_to(scene.work)}")

    def damage(self, file: Path) -> None:
        """Break a file."""
        raise NotImplementedError

    def mend(self, scene: Scene) -> None:
        """Put the files back."""
        for saved in scene.work.rglob(f"*{_SAVED}"):
            saved.replace(saved.with_name(saved.name.removesuffix(_SAVED).removeprefix(".")))


_SAVED = ".saved"
_VERSIONED = (".zip", ".changelog", ".delta", ".snapshot")
"""Endings of the files of a state store whose names begin with the version."""


def _aside(file: Path) -> Path:
    # With a dot in front, so that nothing reads it.
    return file.with_name(f".{file.name}{_SAVED}")


def _forget_checksum(file: Path) -> None:
    """A checksum beside a file would tell at once; a file store without any must not be the weaker for it."""
    for beside in (file.with_name(f".{file.name}.crc"), file.with_name(f"{file.name}.crc")):
        beside.unlink(missing_ok=True)


def _newest(checkpoint: Path, choice: float) -> list[Path]:
    """A file of the newest version in each store of a partition that has one; whichever it is, it is needed."""
    found = []
    for store in sorted((checkpoint / "state").glob("*/*")):
        versions: dict[int, list[Path]] = {}
        for file in sorted(store.glob("[0-9]*")):
            if file.suffix in _VERSIONED:
                versions.setdefault(int(file.name.split("_")[0].split(".")[0]), []).append(file)
        if versions:
            last = versions[max(versions)]
            found.append(last[int(choice * len(last))])
    return found


class MissingState(_BrokenState):
    """A state file that is gone."""

    name = "state-missing"
    about = "a file of the newest state is gone"

    def damage(self, file: Path) -> None:
        """Remove it."""
        file.unlink()


class CutState(_BrokenState):
    """A state file that is shorter than it was."""

    name = "state-cut"
    about = "a file of the newest state has lost its second half"

    def damage(self, file: Path) -> None:
        """Cut it."""
        os.truncate(file, file.stat().st_size // 2)


class FlippedState(_BrokenState):
    """A state file with a wrong byte."""

    name = "state-flipped"
    about = "a byte in the middle of a file of the newest state is another one"

    def damage(self, file: Path) -> None:
        """Change a byte."""
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)


class Hang(Fault):
    """An executor that answers nobody for a minute."""

    name = "executor-hangs"
    about = f"an executor and its Python workers are stopped (SIGSTOP) for {_HANG:.0f} s"

    def strike(self, scene: Scene) -> None:
        """Stop one of the executors with all that is below it, and let it go on."""
        found = find(scene.pid, "executor")
        chosen = psutil.Process(found[int(scene.choice * len(found))])
        stopped = [chosen, *chosen.children(recursive=True)]
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        time.sleep(_HANG)
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


class Memory(Fault):
    """Python workers that are killed whenever they hold more than next to nothing, as a kernel out of memory does."""

    name = "worker-memory"
    about = "every Python worker is killed as soon as it works, for two minutes or until the queries fail"
    says = "Python worker exited unexpectedly|Python worker failed|crashed"

    def strike(self, scene: Scene) -> None:
        """Kill every worker that appears."""
        deadline = time.monotonic() + _HELD
        while scene.runs() and time.monotonic() < deadline:
            for pid in find(scene.pid, "worker"):
                kill(pid)
            time.sleep(0.2)


class _Preloaded(Fault):
    """Something that a library in front of the C library does to every process."""

    def lacking(self) -> str | None:
        """The library has to be compiled, for Linux."""
        if os.uname().sysname != "Linux":
            return "needs Linux"
        return None if shutil.which("cc") else "there is no C compiler (cc)"

    def prepare(self, scene: Scene) -> None:
        """Compile it, and have every process load it."""
        scene.place.mkdir(parents=True, exist_ok=True)
        library = scene.place / "preload.so"
        source = Path(__file__).with_name("preload.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
        self.set(scene)
        scene.environment |= {"LD_PRELOAD": str(library), "CHAOS_CONTROL": str(scene.place / "control")}

    def set(self, scene: Scene, *, seconds: int = 0, microseconds: int = 0) -> None:
        """Set the clock and the disk of all processes, from now on."""
        # In place: they have mapped the file.
        file = scene.place / "control"
        with file.open("r+b" if file.exists() else "wb") as opened:
            opened.write(struct.pack("=qq", seconds, microseconds))


class ClockBack(_Preloaded):
    """A clock that jumps back an hour, and after a restart forward a day."""

    name = "clock-jumps"
    about = "the clock jumps back an hour; a while later the driver is killed and started again a day ahead"

    def strike(self, scene: Scene) -> None:
        """Set it back while the queries run, and far ahead for the next life."""
        self.set(scene, seconds=-3600)
        if scene.wait_for(2 * len(scene.families)):
            scene.kill()
        self.set(scene, seconds=86_400)
        scene.start()


class SlowDisk(_Preloaded):
    """A disk on which every write takes long."""

    name = "disk-slow"
    about = "every write to a file takes 30 ms longer, for a minute"

    def strike(self, scene: Scene) -> None:
        """Slow it down, and let it go."""
        self.set(scene, microseconds=30_000)
        timer = threading.Timer(_SLOW, self.set, [scene])
        timer.start()
        timer.join()


class _OwnInputs(Fault):
    """A fault of the input files, of which it has its own."""

    def prepare(self, scene: Scene) -> None:
        """Copy them, with their times."""
        scene.inputs = Path(shutil.copytree(scene.inputs, scene.place / "inputs"))


class FilesVanish(_OwnInputs):
    """Input files that are gone once all queries have read them; what had not been read is Spark's to miss.

    A file that vanishes before its micro-batch lists it is left out by Spark's file source, with a warning in its log
    and no other word, so that no join can know.
    """

    name = "inputs-vanish"
    about = "after a kill of the driver, the files that all queries have read are gone"

    def strike(self, scene: Scene) -> None:
        """Stop the queries, so that it is known what they have read, and take it away."""
        scene.kill()
        # A micro-batch has at least one file of each input.
        read = min(batches(place_of(scene.work, family)) for family in scene.families)
        for name in "ABC":
            for file in sorted((scene.inputs / name).glob("*.json"))[:read]:
                file.rename(_aside(file))

    def mend(self, scene: Scene) -> None:
        """Put them back."""
        for saved in scene.inputs.rglob(f"*{_SAVED}"):
            saved.rename(saved.with_name(saved.name.removesuffix(_SAVED).removeprefix(".")))


class FilesAgain(_OwnInputs):
    """Input files that are written again: the same name, the same rows, a new time."""

    name = "inputs-again"
    about = "every input file is written again, with the same rows, under the same name"

    def strike(self, scene: Scene) -> None:
        """Write all files again, as a job upstream that is repeated."""
        for file in sorted(scene.inputs.glob("[ABC]/*.json")):
            moment = file.stat().st_mtime
            copy = file.with_name(f".{file.name}.new")
            copy.write_bytes(file.read_bytes())
            # Those that were not read yet keep their order.
            os.utime(copy, (moment + 3600, moment + 3600))
            copy.replace(file)


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        FullCheckpoint(), FullShuffle(), MissingState(), CutState(), FlippedState(), Memory(), Hang(), SlowDisk(),
        ClockBack(), FilesVanish(), FilesAgain(),
    )
}  # fmt: skip
