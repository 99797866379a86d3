"""The program of docs/kafka.md against a broker; ``python -m tests.kafka.test_page`` writes what it prints into it."""

from __future__ import annotations

import os

import pytest
from tests.docs.pages import ROOT, complaint, run, write

pytestmark = pytest.mark.kafka

PAGE = ROOT / "docs" / "kafka.md"


def test_the_page_runs_and_prints_what_it_shows(spark, broker, monkeypatch):
    monkeypatch.setenv("KAFKA", broker.servers)
    ran = list(run(PAGE, {"__name__": "__main__"}))
    assert len(ran) >= 4
    wrong = [f"{PAGE.name}:{one.line}: {said}" for one in ran if (said := complaint(one))]
    assert not wrong, "\n\n".join(wrong)


if __name__ == "__main__":
    from scripts.fetch_jars import fetch, for_spark
    from tests.kafka.broker import Broker

    import dovetail

    jars = ",".join(map(str, fetch(for_spark("kafka-connector"))))
    with Broker() as started:
        os.environ["KAFKA"] = started.servers
        spark = dovetail.session(
            "pages",
            master="local[2]",
            driver_memory="2g",
            conf={"spark.jars": jars, "spark.sql.shuffle.partitions": 2, "spark.ui.showConsoleProgress": False},
        )
        write(PAGE, {"__name__": "__main__"})
        spark.stop()
