"""Names in SQL: quoted for Spark, plain for people."""

from __future__ import annotations

import re


def quoted(name: str) -> str:
    """A name in backquotes, as Spark SQL takes any name.

    Examples
    --------
    >>> quoted("two words"), quoted("a`b")
    ('`two words`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


def readable(sql: str) -> str:
    """SQL without the backquotes that it can do without: for reading only.

    Examples
    --------
    >>> readable("`R`.`x` < `S`.`two words`")
    'R.x < S.`two words`'
    """
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", sql)


def bare(sql: str) -> str:
    """SQL without any backquote.  Checkpoints are recognised by it, so it must not change.

    Examples
    --------
    >>> bare("`R`.`x` < `S`.`two words`")
    'R.x < S.two words'
    """
    return sql.replace("`", "")
