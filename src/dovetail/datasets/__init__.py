"""Small generated tables for the demo, the examples and the docs: the same rows for the same seed, on every machine.

The tables are Arrow tables, so they need no Spark; ``spark.createDataFrame(table)`` accepts them directly.
"""

from dovetail.datasets.events import network_packets, news_items, seekers_and_projects
from dovetail.datasets.tables import (
    START,
    camera_sightings,
    clicks_and_orders,
    meetings_and_repairs,
    phones_and_laptops,
    price_streams,
    sensor_readings,
    store_sales,
    trades_and_quotes,
    weather_sensors,
)

__all__ = [
    "START",
    "camera_sightings",
    "clicks_and_orders",
    "meetings_and_repairs",
    "network_packets",
    "news_items",
    "phones_and_laptops",
    "price_streams",
    "seekers_and_projects",
    "sensor_readings",
    "store_sales",
    "trades_and_quotes",
    "weather_sensors",
]
