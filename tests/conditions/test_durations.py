from __future__ import annotations

import doctest
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.conditions import durations as windows
from dovetail.conditions.durations import MICROSECONDS, CountWindow, TimeWindow, amounts, duration, tumbling
from dovetail.errors import ArgumentError


def test_examples_in_docstrings():
    assert doctest.testmod(windows).failed == 0


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("30 MINUTES 1 Hour", 5_400_000_000),
        ("5 s", 5_000_000),
        ("5s", 5_000_000),
        ("250 ms", 250_000),
        ("7 us", 7),
        ("7 µs", 7),
        ("7 μs", 7),
        ("2 days", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("1.5 hours", 5_400_000_000),
        (".25 s", 250_000),
        ("INTERVAL 5 SECONDS", 5_000_000),
        ("interval '5' second", 5_000_000),
        ("INTERVAL '1 hour 30 minutes'", 5_400_000_000),
        ("  2 min  ", 120_000_000),
        (timedelta(microseconds=1), 1),
        (timedelta(days=2, microseconds=3), 172_800_000_003),
    ],
)
def test_duration_reads(text, microseconds):
    assert duration(text, argument="within") == microseconds


@pytest.mark.parametrize(
    ("value", "wording"),
    [
        ("1 month", "no fixed length"),
        ("2 years", "no fixed length"),
        ("1 quarter", "no fixed length"),
        ("0 seconds", "longer than zero"),
        ("-5 seconds", "longer than zero"),
        ("1 hour -2 hours", "longer than zero"),
        (timedelta(0), "longer than zero"),
        (timedelta(seconds=-1), "longer than zero"),
        ("0.5 us", "finer than a microsecond"),
        ("5 m", "unknown unit 'm'"),
        ("5 fortnights", "unknown unit 'fortnights'"),
        ("", "not a length of time"),
        ("interval", "not a length of time"),
        ("soon", "not a length of time"),
        ("5 seconds!", "not a length of time"),
        ("5 seconds and 3 ms", "not a length of time"),
        ("5", "within='5 seconds'"),
        (5, "within='5 seconds'"),
        (1.5, "within='1.5 seconds'"),
        (True, "not a length of time"),
        (None, "not a length of time"),
        ("200000000 days", "longer than Spark can count"),
        (timedelta.max, "longer than Spark can count"),
    ],
)
def test_duration_refuses(value, wording):
    with pytest.raises(ArgumentError) as caught:
        duration(value, argument="within")
    message = str(caught.value)
    assert wording in message
    assert message.startswith("within=")
    assert "accepted:" in message


def test_no_hint_of_a_unit_where_a_number_is_no_length():
    with pytest.raises(ArgumentError) as caught:
        duration(True, argument="within")
    assert caught.value.hint is None


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(MICROSECONDS)), st.booleans()), min_size=1))
def test_duration_is_the_sum_of_its_parts(parts):
    text = " ".join(f"{count} {unit}{'s' if plural else ''}" for count, unit, plural in parts)
    total = sum(count * MICROSECONDS[unit] for count, unit, _ in parts)
    if 1 <= total < 2**63:
        assert duration(text, argument="within") == total
    else:
        with pytest.raises(ArgumentError):
            duration(text, argument="within")


@given(st.text(max_size=12))
def test_text_is_read_or_refused(text):
    try:
        read = duration(text, argument="within")
    except ArgumentError as error:
        message = str(error)
    else:
        message = f"{read} {text!r}"
        assert 1 <= read < 2**63
    assert repr(text) in message


def test_amounts_leave_the_words_alone():
    assert [word for _, word in amounts("3 apples 2 pears")] == ["apples", "pears"]
    assert amounts("") is None
    assert amounts("3") is None


def test_tumbling():
    assert tumbling(None) is None
    assert tumbling(1) == CountWindow(rows=1)
    assert tumbling("1 minute", time="ts") == TimeWindow(time="ts", every=60_000_000)
    assert tumbling(timedelta(seconds=1), time="ts") == TimeWindow(time="ts", every=1_000_000)


@pytest.mark.parametrize(
    ("window", "time", "wording"),
    [
        (0, None, "window=0 is not a window"),
        (-3, None, "window=-3"),
        (True, None, "window=True"),
        (False, None, "window=False"),
        (1.5, None, "window=1.5"),
        ([], None, "window=[]"),
        ("1 minute", None, "time= is missing"),
        ("a while", "ts", "window='a while'"),
        ("1 minute", "", "time=''"),
        ("1 minute", 3, "time=3"),
        (5, "ts", "the window counts rows"),
        (None, "ts", "there is no window"),
        (None, 3, "time=3"),
    ],
)
def test_tumbling_refuses(window, time, wording):
    with pytest.raises(ArgumentError) as caught:
        tumbling(window, time)
    assert wording in str(caught.value)


@pytest.mark.parametrize("rows", [0, -1, True, 1.0, "1", None])
def test_count_window_checks_itself(rows):
    with pytest.raises(ArgumentError):
        CountWindow(rows=rows)


@pytest.mark.parametrize(
    ("time", "every"),
    [("ts", 0), ("ts", -1), ("ts", True), ("ts", 1.5), ("ts", 2**63), ("", 1), (" ", 1), (None, 1)],
)
def test_time_window_checks_itself(time, every):
    with pytest.raises(ArgumentError):
        TimeWindow(time=time, every=every)


def test_windows_are_values():
    window = TimeWindow(time="ts", every=1)
    with pytest.raises(AttributeError):
        window.every = 2
    assert {window, TimeWindow(time="ts", every=1)} == {window}
