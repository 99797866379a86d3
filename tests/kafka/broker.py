"""One Kafka broker in KRaft mode on loopback, from the archives of ``requirements/jars/kafka-broker.txt``.

    python -m tests.kafka.broker

starts one, prints its address, and stops it when standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from confluent_kafka.admin import AdminClient
from scripts.fetch_jars import fetch, java

PATIENCE = 900.0
"""Seconds for a broker to answer: a limit for hangs; a start takes five on an idle machine."""
_OPTIONS = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Broker:
    """A broker with a folder of its own; as a context it starts, and is gone at the end whatever happened."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dovetail-kafka-"))
        self._classes = os.pathsep.join(map(str, fetch("kafka-broker")))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = _free_ports(2)
        self._formatted = False

    @property
    def servers(self) -> str:
        """What clients call ``bootstrap.servers``; the same after a restart."""
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> Broker:
        """Start, or start again on the same data; comes back when the broker answers."""
        if not self._formatted:
            self._format()
        self._process = self._run("kafka.Kafka", str(self._settings))
        waited = 0.0
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self._process.returncode}:\n{self.log()}")
            waited += 0.2
            if waited > PATIENCE:
                raise RuntimeError(f"the broker did not answer for {PATIENCE:.0f} s:\n{self.log()}")
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """Ask it to end, as an operator does; its data stays for another start."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it answer nobody, and keep its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it and start it again, on the same data and port."""
        self.kill()
        self.start()

    def log(self, lines: int = 30) -> str:
        """The last lines that the broker wrote."""
        file = self.folder / "broker.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.is_file() else ""

    def __enter__(self) -> Broker:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _format(self) -> None:
        broker, controller = self._ports
        self._settings.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={self.folder / "data"}
auto.create.topics.enable=false
# Records have event times of any day: the broker would remove what it takes for old.
log.retention.ms=-1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# A broker that was killed comes back before the controller has noticed, and waits until it has.
initial.broker.registration.timeout.ms=900000
""",
            encoding="ascii",
        )
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        done = self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)).wait(PATIENCE)
        if done:
            raise RuntimeError(f"the broker's folder could not be made:\n{self.log()}")
        self._formatted = True

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        # A log of its own size is no use: what goes wrong stands at its end.
        logging = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dlog4j2.level=WARN")
        command = [java(), *_OPTIONS, *logging, "-cp", self._classes, *words]
        with (self.folder / "broker.log").open("ab") as log:
            # Outside our session of processes: what kills a driver's session must leave the broker alone.
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._ports[0]), timeout=5):
            client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            with contextlib.suppress(Exception):
                return bool(client.list_topics(timeout=5).brokers)
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
            # A paused process hears of nothing but SIGKILL until it goes on.
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(60 if how is signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


if __name__ == "__main__":
    with Broker() as started:
        print(started.servers, flush=True)
        sys.stdin.read()
