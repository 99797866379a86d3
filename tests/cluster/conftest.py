"""What the tests of clusters and of Spark Connect share: data, answers of the local session, the shipped package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cluster.families import make_data
from tests.cluster.standalone import build_wheel


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "data"
    make_data(folder)
    return folder


@pytest.fixture(scope="session")
def shipped(tmp_path_factory) -> Path:
    """The package as one file that `--py-files` and `addArtifacts` take: a wheel under the name of a zip."""
    place = tmp_path_factory.mktemp("shipped")
    return Path(shutil.copy(build_wheel(place), place / "dovetail.zip"))


@pytest.fixture(scope="session")
def locally(spark, data):
    """The answer of a case in the tests' own session, worked out once."""
    known: dict[object, list[str]] = {}

    def answer(case) -> list[str]:
        if case not in known:
            before = spark.conf.get("spark.sql.shuffle.partitions")
            spark.conf.set("spark.sql.shuffle.partitions", "2")
            try:
                known[case] = case(spark, data)
            finally:
                spark.conf.set("spark.sql.shuffle.partitions", before)
        return known[case]

    return answer
