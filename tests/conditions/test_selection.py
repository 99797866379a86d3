"""Reading ``select=``: what an item selects, what it refuses, and which columns any text may mean."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.conditions.mentions import mentioned, stands_alone, texts_of
from dovetail.conditions.names import quoted
from dovetail.conditions.selection import Row, read_item, split_items
from dovetail.errors import ArgumentError, UnknownNameError

COLUMNS = {"t": ["id", "price", "two words", "st"], "q": ["bid", "id"]}
ROW = Row(COLUMNS, ["t", "q"], ["distance"])


@pytest.mark.parametrize(
    ("item", "sql"),
    [
        ("bid - T.price AS gap", "`q`.`bid` - `t`.`price` AS gap"),
        ("T.ID", "`t`.`id` AS `ID`"),
        ("t.st.a.b", "`t`.`st`.`a`.`b` AS `b`"),
        ("st.a + 1 more", "`t`.`st`.`a` + 1 more"),
        ("t.`two words`", "`t`.`two words` AS `two words`"),
        ("transform(array(bid), x -> x + price)", "transform(array(`q`.`bid`), x -> x + `t`.`price`)"),
        ("CASE WHEN bid > 1 THEN 't.id' END", "CASE WHEN `q`.`bid` > 1 THEN 't.id' END"),
        ("distance * 2 AS twice", "distance * 2 AS twice"),
        ("count(bid) OVER (PARTITION BY t.id) AS n", "count(`q`.`bid`) OVER (PARTITION BY `t`.`id`) AS n"),
        ("st.s LIKE ANY ('a', 'b') AS alike", "`t`.`st`.`s` LIKE ANY ('a', 'b') AS alike"),
    ],
)
def test_names_are_written_in_full_and_the_rest_as_it_stands(item, sql):
    assert [output.sql for output in read_item(item, ROW)] == [sql]


@pytest.mark.parametrize(
    ("item", "columns"),
    [
        ("t.*", ["t.id", "t.price", "t.two words", "t.st"]),
        ("t.* EXCEPT (ID, `two words`)", ["t.price", "t.st"]),
        ("*", ["t.id", "t.price", "t.two words", "t.st", "q.bid", "q.id", "distance"]),
        ("* EXCEPT (t.id, distance)", ["t.price", "t.two words", "t.st", "q.bid", "q.id"]),
    ],
)
def test_stars_are_the_columns_of_the_inputs_that_come_out(item, columns):
    assert [output.sql.replace("`", "") for output in read_item(item, ROW)] == columns


@pytest.mark.parametrize(
    ("item", "uses"),
    [
        ("t", {("t", name) for name in COLUMNS["t"]}),
        ("to_json(struct(q.*))", {("q", "bid"), ("q", "id")}),
        ("struct(*)", {(alias, name) for alias, names in COLUMNS.items() for name in names}),
        ("t.st['price']", {("t", "st"), ("t", "price")}),  # a string counts as a name: one too many does no harm
        ("1 AS one", set()),
    ],
)
def test_an_item_tells_which_columns_it_reads(item, uses):
    (output,) = read_item(item, ROW)
    assert output.uses == uses


@pytest.mark.parametrize(
    ("item", "error", "said"),
    [
        ("id", ArgumentError, "ambiguous"),
        ("t.pric", UnknownNameError, "did you mean 'price'?"),
        ("x.id", UnknownNameError, "names the input 'x'"),
        ("distanse", UnknownNameError, "did you mean 'distance'?"),
        ("t.* EXCEPT (bid)", UnknownNameError, "not among its columns"),
        ("sum(bid)", ArgumentError, "aggregate"),
        ("t -> q", ArgumentError, "a function that no call takes"),
        ("transform(array(bid), x -> x -> 1)", ArgumentError, "a function that no call takes"),
        ("(SELECT 1)", ArgumentError, "subquery"),
        ("t.price, q.bid", ArgumentError, "not an expression"),
        ("t.id FROM x", ArgumentError, "without FROM"),
        ("DISTINCT bid", ArgumentError, "without FROM"),
        ("bid +", ArgumentError, "    bid +\n        ^"),
        ("", ArgumentError, "empty"),
        ("'abc", ArgumentError, "does not end"),
    ],
)
def test_refusals_say_what_is_wrong(item, error, said):
    with pytest.raises(error) as raised:
        read_item(item, ROW)
    assert said in str(raised.value)


def test_rows_that_do_not_come_out_cannot_be_selected():
    with pytest.raises(ArgumentError, match="do not come out with how='semi'"):
        read_item("bid", Row(COLUMNS, ["t"], how=" with how='semi'"))


def test_a_bare_name_means_an_input_whose_rows_come_out():
    assert [output.sql for output in read_item("id", Row(COLUMNS, ["t"]))] == ["`t`.`id` AS `id`"]


def test_a_column_of_the_join_may_be_called_like_an_input_whose_rows_do_not_come_out():
    assert [output.sql for output in read_item("q", Row(COLUMNS, ["t"], ["q"]))] == ["q AS `q`"]


def test_an_input_whose_rows_do_not_come_out_hides_no_column_of_its_name():
    row = Row({"t": ["id", "q"], "q": ["bid"]}, ["t"], how=" with how='semi'")
    assert [output.sql for output in read_item("q IS NULL AS none", row)] == ["`t`.`q` IS NULL AS none"]
    with pytest.raises(ArgumentError, match="names the input 'q'"):
        read_item("q IS NULL AS none", Row(COLUMNS, ["t"], how=" with how='semi'"))


def test_a_text_is_a_list_as_sql_has_it():
    assert split_items("t.id, greatest(t.x, q.y) AS most, 'a, b' AS text") == [
        "t.id",
        "greatest(t.x, q.y) AS most",
        "'a, b' AS text",
    ]


def test_texts_are_found_in_anything_that_an_argument_can_be():
    from dovetail.conditions.criteria import closest, least

    given = {"on": [closest("ts", within="5 seconds"), least("R.a + S.b")], "how": {"R": "keep"}, "k": 3, "w": None}
    assert {"ts", "R.a + S.b", "R", "keep"} <= set(texts_of(given))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("t.id = q.bid", {"t": {"id"}, "q": {"bid"}}),
        ("id", {"t": {"id"}, "q": {"id"}}),
        ("`T` . `ID` < 1", {"t": {"id"}, "q": set()}),
        ("q.  bid", {"t": set(), "q": {"bid"}}),
        ("two words", {"t": {"two words"}, "q": set()}),
        ("collect_list(struct(q.*))", {"t": set(), "q": {"bid", "id"}}),
        ("count(*)", {"t": set(), "q": set()}),
        ("count( * ) + f(*)", {"t": set(COLUMNS["t"]), "q": set(COLUMNS["q"])}),
        ("price * bid", {"t": {"price"}, "q": {"bid"}}),
    ],
)
def test_words_tell_which_columns_a_text_may_mean(text, found):
    assert mentioned([text], COLUMNS) == found


names = st.text("abAB_1é `-.", min_size=1, max_size=4).filter(lambda name: name.strip() == name)


@examples(300)
@given(st.dictionaries(st.sampled_from("tqrs"), st.lists(names, min_size=1, unique_by=str.casefold)), st.randoms())
def test_no_column_that_a_text_names_is_missed(columns: dict[str, list[str]], draw: random.Random):
    """Names of any characters, in backquotes or bare where SQL takes them bare, qualified or not, in any case."""
    meant: dict[str, set[str]] = {alias: set() for alias in columns}
    pieces = []
    for alias, own in columns.items():
        for name in draw.sample(own, draw.randint(0, len(own))):
            plain = name.isidentifier() and draw.random() < 0.5
            spelled = draw.choice([name, name.swapcase()]) if name.swapcase().casefold() == name.casefold() else name
            written = spelled if plain else quoted(spelled)
            front = draw.choice(["", f"{alias}.", f"`{alias.upper()}` . "])
            pieces.append(f"{front}{written}")
            meant[alias].add(name)
    text = draw.choice([" + ", ", ", " AND\n", "<"]).join(pieces)
    found = mentioned([text], columns)
    assert all(meant[alias] <= found[alias] for alias in columns), (text, meant, found)


def test_an_alias_that_stands_alone_is_the_whole_input():
    assert stands_alone("t", "struct(t, q.id)")
    assert stands_alone("t", "T")
    assert stands_alone("t", "`t`")
    assert not stands_alone("t", "t.id + q.t + `t` . `x`")
