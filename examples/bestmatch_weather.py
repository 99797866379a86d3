"""How likely is rain?  The best humidity readings for every temperature reading, as a batch and as a stream.

python examples/bestmatch_weather.py [folder] [--sensors 40] [--data house_sensors.parquet]

Temperature and humidity sensors are in different places and report at different rates, so no sensor belongs to
another.  Two readings may go together if they are at most 10 minutes and, in each direction, 100 m apart.  A pair is
better than another if it is at least as near in time and in both directions, and nearer in one of them.

With --data, readings come from a file with the columns ts, sensor, temperature and humidity (nine sensors in one
house): then the positions are those of an invented floor plan, in metres, and the sensors may be 10 m apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import dovetail as dt
from dovetail.datasets import weather_sensors

ROOMS = {1: (1, 1), 2: (6, 1), 3: (11, 1), 4: (1, 6), 5: (6, 6), 6: (6, 14), 7: (11, 6), 8: (1, 11), 9: (6, 11)}
SCHEMA = "sensor string, t timestamp, x double, y double, v double"


def house(file: Path) -> tuple[pa.Table, pa.Table]:
    """Temperature of the odd sensors and humidity of the even ones, of the first day of the file."""
    rows = pq.read_table(file).slice(0, 9 * 144).to_pylist()
    tables = []
    for odd, column in ((1, "temperature"), (0, "humidity")):
        mine = [row for row in rows if row["sensor"] % 2 == odd]
        tables.append(
            pa.table(
                {
                    "sensor": [f"{column[0].upper()}{row['sensor']}" for row in mine],
                    "t": pa.array([row["ts"] for row in mine], pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
                    "x": [float(ROOMS[row["sensor"]][0]) for row in mine],
                    "y": [float(ROOMS[row["sensor"]][1]) for row in mine],
                    "v": [float(row[column]) for row in mine],
                }
            )
        )
    return tables[0], tables[1]


def join(inputs, metres: float):
    """The paper's query: the best humidity readings for each temperature reading."""
    near = [
        dt.closest("t", within="10 minutes"),
        dt.closest("x", within=metres),
        dt.closest("y", within=metres),
    ]
    return dt.bestmatch_join(inputs, on=near, how="left")


def main(folder: Path, sensors: int, data: Path | None) -> None:
    spark = dt.session("weather")
    tables = weather_sensors(sensors) if data is None else house(data)
    metres = 100.0 if data is None else 10.0
    for name, table in zip(("temperature", "humidity"), tables, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        # Two files each: the stream below reads one at a time.
        half = table.num_rows // 2
        for number, part in enumerate((table.slice(0, half), table.slice(half))):
            file = folder / name / f"{number}.parquet"
            pq.write_table(part, file)
            # Spark reads files in the order of their times, in milliseconds: two that are written at once have none.
            os.utime(file, (1_000_000_000 + number,) * 2)

    inputs = {name: spark.read.schema(SCHEMA).parquet(str(folder / name)) for name in ("temperature", "humidity")}
    pairs = join(inputs, metres)
    dt.explain(pairs)
    flat = [
        "temperature.sensor AS temperature_sensor", "humidity.sensor AS humidity_sensor", "temperature.t",
        "temperature.v AS degrees", "humidity.v AS percent",
        # Magnus' formula: how far the air is from its dew point.  The closer, the likelier is rain.
        "round(temperature.v - 243.12 * g / (17.62 - g), 1) AS above_dew_point",
    ]  # fmt: skip
    magnus = "ln(humidity.v / 100) + 17.62 * temperature.v / (243.12 + temperature.v)"
    pairs.selectExpr("*", f"{magnus} AS g").selectExpr(*flat).write.mode("overwrite").parquet(str(folder / "rain"))
    found = spark.read.parquet(str(folder / "rain"))
    print(f"{found.count()} pairs for {found.select('temperature_sensor', 't').distinct().count()} readings")
    found.orderBy("above_dew_point", "t", "temperature_sensor", "humidity_sensor").show(5)

    streams = {
        name: spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        .withWatermark("t", "1 minute")
        for name in ("temperature", "humidity")
    }
    query = (
        join(streams, metres)
        .writeStream.format("parquet")
        .option("path", str(folder / "live"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    live = spark.read.parquet(str(folder / "live"))
    print(f"the stream has {live.count()} of them: those that nothing still to come can change")
    assert live.exceptAll(join(inputs, metres)).isEmpty()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--sensors", type=int, default=40)
    parser.add_argument("--data", type=Path, help="a file of real readings")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.sensors, arguments.data)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.sensors, arguments.data)
