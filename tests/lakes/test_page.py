"""The program of docs/tables.md, with each format; run as a module, this writes what it prints into the page."""

from __future__ import annotations

import pytest
from tests.docs.pages import ROOT, complaint, run, write

pytestmark = pytest.mark.tables

PAGE = ROOT / "docs" / "tables.md"


def test_the_page_runs_and_prints_what_it_shows(spark, lake, monkeypatch):
    monkeypatch.setenv("LAKE", lake.schema)
    monkeypatch.setenv("FORMAT", lake.format)
    ran = list(run(PAGE, {"__name__": "__main__"}))
    assert len(ran) >= 5
    wrong = [f"{PAGE.name}:{one.line}: {said}" for one in ran if (said := complaint(one))]
    assert not wrong, "\n\n".join(wrong)


if __name__ == "__main__":
    from scripts.fetch_jars import fetch, for_spark

    import dovetail

    spark = dovetail.session(
        "pages",
        master="local[2]",
        driver_memory="2g",
        conf={
            "spark.jars": ",".join(map(str, fetch(for_spark("delta", exactly=True)))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.showConsoleProgress": False,
        },
    )
    write(PAGE, {"__name__": "__main__"})
    spark.stop()
