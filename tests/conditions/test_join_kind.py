"""`how=` in every spelling that Spark takes, and in no other."""

from __future__ import annotations

import pytest

from dovetail.conditions.join_kind import HOWS, Spelling, read_how
from dovetail.errors import ArgumentError
from dovetail.families.asof.spec import HOWS as ASOF_HOWS

SPELLINGS = {
    "inner": ["inner"],
    "full": ["full", "outer", "fullouter", "full_outer"],
    "left": ["left", "leftouter", "left_outer"],
    "right": ["right", "rightouter", "right_outer"],
    "semi": ["semi", "leftsemi", "left_semi"],
    "anti": ["anti", "leftanti", "left_anti"],
}
ALL = [(spelling, word) for word, spellings in SPELLINGS.items() for spelling in spellings]


@pytest.mark.parametrize(("spelling", "word"), ALL)
def test_spellings(spelling, word):
    assert {read_how(text, HOWS) for text in (spelling, spelling.upper(), spelling.title())} == {word}
    assert read_how(spelling.replace("_", " "), HOWS) == word


def test_the_type_names_all_of_them():
    assert {*Spelling.__args__} == {spelling for spelling, word in ALL if spelling != word}


@pytest.mark.parametrize("how", ["left_inner", "natural", "", "rightsemi", "right_anti", "lef"])
def test_other_words(how):
    with pytest.raises(ArgumentError, match=f"how={how!r} is not a choice") as refused:
        read_how(how, HOWS)
    assert refused.value.accepted == "'inner', 'left', 'right', 'full', 'semi', 'anti'"


def test_a_family_refuses_in_its_own_words():
    assert read_how("LeftOuter", ASOF_HOWS) == "left"
    with pytest.raises(ArgumentError, match="how='leftsemi' is not a choice") as refused:
        read_how("leftsemi", ("inner", "left"))
    assert refused.value.accepted == "'inner', 'left'"


@pytest.mark.parametrize("how", ["cross", "CROSS"])
def test_cross(how):
    with pytest.raises(ArgumentError, match="is not a choice") as refused:
        read_how(how, HOWS)
    assert "crossJoin" in refused.value.hint


@pytest.mark.parametrize("how", [None, 5, {"A": "keep"}])
def test_what_is_no_text_is_the_familys(how):
    assert read_how(how, HOWS) is how
