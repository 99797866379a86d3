"""The local session: its settings, its check of Java, and that it leaves a user's session alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from dovetail.errors import ArgumentError
from dovetail.spark.runtime import session as module
from dovetail.spark.runtime.session import SessionWarning, build_conf, session


class TestConf:
    def test_settings_that_results_and_speed_depend_on(self):
        conf = build_conf()
        assert conf["spark.sql.session.timeZone"] == "UTC"
        assert conf["spark.sql.execution.arrow.pyspark.enabled"] == "true"
        assert conf["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"
        assert conf["spark.sql.execution.arrow.maxRecordsPerBatch"] == "50000"
        assert conf["spark.sql.streaming.stateStore.providerClass"].endswith(".RocksDBStateStoreProvider")
        assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
        assert conf["spark.ui.enabled"] == "false"

    def test_workers_run_the_interpreter_of_the_driver(self, monkeypatch):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
        assert build_conf()["spark.pyspark.python"] == sys.executable

    def test_an_interpreter_that_the_user_chose_stays(self, monkeypatch):
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
        assert build_conf()["spark.pyspark.python"] == "/opt/python"

    @pytest.mark.parametrize(
        ("master", "partitions"),
        [("local", 4), ("local[1]", 4), ("local[3]", 6), ("local[8]", 16), ("local[8, 2]", 16)],
    )
    def test_partitions_follow_the_cores(self, master, partitions):
        assert build_conf(master=master)["spark.sql.shuffle.partitions"] == str(partitions)

    def test_conf_of_the_caller_wins_and_is_written_as_spark_reads_it(self):
        conf = build_conf(conf={"spark.ui.enabled": True, "spark.sql.shuffle.partitions": 7, "spark.x": "y"})
        assert (conf["spark.ui.enabled"], conf["spark.sql.shuffle.partitions"], conf["spark.x"]) == (
            "true",
            "7",
            "y",
        )

    def test_the_collector_of_the_caller_wins(self, monkeypatch, tmp_path):
        """Two choices of a collector, and the JVM does not start."""
        for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_CONF_DIR"):
            monkeypatch.delenv(name, raising=False)
        setting = "spark.driver.defaultJavaOptions"
        assert build_conf()[setting] == "-XX:+UseParallelGC"
        assert setting not in build_conf(conf={"spark.driver.extraJavaOptions": "-Dx=1 -XX:+UseG1GC"})
        assert build_conf(conf={setting: "-XX:+UseZGC"})[setting] == "-XX:+UseZGC"
        (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseSerialGC")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        assert setting not in build_conf()
        monkeypatch.delenv("SPARK_CONF_DIR")
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseShenandoahGC")
        assert setting not in build_conf()

    @pytest.mark.parametrize("master", ["spark://far:7077", "yarn", "k8s://https://far"])
    def test_a_cluster_can_reach_the_driver_and_needs_no_package_for_its_daemon(self, master):
        alone = build_conf().keys() - build_conf(master=master).keys()
        assert alone == {
            "spark.driver.host", "spark.driver.bindAddress", "spark.python.daemon.module", "spark.shuffle.compress",
            "spark.sql.shuffle.orderIndependentChecksum.enabled",
        }  # fmt: skip
        assert build_conf(master=master)["spark.master"] == master

    @pytest.mark.parametrize("memory", ["4", "g", "4 g", "0g", "-1g", "1.5g", "lots", ""])
    def test_memory_that_is_no_size(self, memory):
        with pytest.raises(ArgumentError, match="is not a size"):
            build_conf(driver_memory=memory)

    @pytest.mark.parametrize(
        ("total", "heap"), [(1, "1024m"), (2, "1024m"), (6, "3072m"), (16, "8192m"), (512, "8192m")]
    )
    def test_memory_is_half_within_1_and_8_gib(self, monkeypatch, total, heap):
        monkeypatch.setattr(module, "_usable_memory", lambda: total << 30)
        assert build_conf()["spark.driver.memory"] == heap

    def test_limit_of_a_container_counts(self, tmp_path):
        limit = tmp_path / "memory.max"
        limit.write_text(f"{1 << 28}\n")
        assert module._usable_memory(str(limit)) == 1 << 28
        limit.write_text("max\n")
        assert module._usable_memory(str(limit)) == module._usable_memory(str(tmp_path / "missing"))

    def test_log_settings_join_the_options_of_the_caller(self):
        options = build_conf(conf={"spark.driver.extraJavaOptions": "-Xss4m"})["spark.driver.extraJavaOptions"]
        assert options.startswith("-Xss4m -Dlog4j2.configurationFile=file://")
        log_file = Path(options.partition("=file://")[2])
        assert "rootLogger.level = error" in log_file.read_text()

    @pytest.mark.parametrize(
        "chosen",
        [{"spark.log.level": "INFO"}, {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=/x"}],
    )
    def test_log_settings_of_the_caller_stay(self, chosen):
        assert chosen.items() <= build_conf(conf=chosen).items()
        assert "log4j2.properties" not in str(build_conf(conf=chosen))


class TestSession:
    @pytest.mark.in_turns(group="a session of its own")
    def test_the_jvm_was_told_what_to_inline_and_does_not_talk_of_it(self, tmp_path):
        program = "import dovetail as dt; spark = dt.session(); print(spark.conf.get('spark.driver.extraJavaOptions'))"
        run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
        (options,) = run.stdout.splitlines()
        assert "-XX:CompileCommand=inline,scala.collection.IterableOnceOps::toArray" in options

    def test_starts_and_its_workers_run_this_python(self, spark):
        def versions(batches):
            import sys

            import pyarrow as pa

            for batch in batches:
                yield pa.RecordBatch.from_pydict({"python": [sys.executable] * batch.num_rows})

        rows = spark.range(0, 4, numPartitions=2).mapInArrow(versions, "python string").collect()
        # A virtual environment's python is a link; the workers may report either end.
        assert {os.path.realpath(row.python) for row in rows} == {os.path.realpath(sys.executable)}
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"

    def test_existing_session_comes_back_untouched(self, spark):
        before = spark.conf.getAll
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert session() is spark
        assert spark.conf.getAll == before

    def test_arguments_without_effect_are_named(self, spark):
        before = spark.conf.getAll
        with pytest.warns(SessionWarning, match="so master, conf had no effect"):
            found = session(master="local[7]", conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
        assert found is spark
        assert spark.conf.getAll == before

    def test_session_of_another_thread_is_found(self, spark):
        found = []
        thread = threading.Thread(target=lambda: found.append(session()))
        thread.start()
        thread.join()
        assert found[0].sparkContext is spark.sparkContext

    @pytest.mark.in_turns(group="a session of its own")
    @pytest.mark.spark
    def test_start_is_quiet(self, tmp_path):
        script = (
            "from dovetail.spark.runtime.session import session; print(session(master='local[1]').range(3).count())"
        )
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert (run.stdout.strip(), run.stderr) == ("3", "")
