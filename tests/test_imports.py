"""Which module may import which: imports go one way, and nothing loads what it does not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# From low to high.  A module imports from the lines above its own and, within a package, from its own package;
# packages on one line know nothing of each other.
LEVELS = """
    errors
    conditions
    columns                                 reference  datasets
    family      inventory
    checkpoints reports
    changing
    families    watch
    plan        statements   contents  moving
    spark
    api
    jobs
    plots
    command
    __init__    __main__
"""
LEVEL = {package: level for level, line in enumerate(LEVELS.strip().splitlines()) for package in line.split()}

# What tests compare with and made-up data must not share code with what they are used on.
APART = {"reference": {"errors", "conditions"}, "datasets": {"errors", "conditions"}}

SPARK = ("pyspark", "py4j")
FAMILY_MAY_IMPORT = {"shedding": {"window"}}


@dataclass(frozen=True)
class Import:
    importer: str
    imported: str
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"

    @property
    def edge(self) -> tuple[str, str]:
        return self.importer, self.imported


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_in(module: str, node: ast.AST, *, typing_only: bool = False) -> Iterator[Import]:
    """The imports below a node of the syntax tree, also those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, alias.name, typing_only)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module} has a relative import"
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                yield Import(module, name if name in FILES else str(child.module), typing_only)
        elif isinstance(child, ast.If) and is_type_checking(child.test):
            for statement in child.body:
                yield from imports_in(module, ast.Module([statement], []), typing_only=True)
            for statement in child.orelse:
                yield from imports_in(module, ast.Module([statement], []), typing_only=typing_only)
        else:
            yield from imports_in(module, child, typing_only=typing_only)


IMPORTS = sorted(
    {one for module, file in FILES.items() for one in imports_in(module, ast.parse(file.read_text(encoding="utf-8")))},
    key=str,
)
INTERNAL = [one for one in IMPORTS if one.imported.partition(".")[0] == "dovetail"]


def package_of(module: str) -> str:
    """The part of the architecture that a module belongs to, such as ``spark`` or ``errors``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def family_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[1] == "families" else None


def is_allowed(one: Import) -> bool:
    importer, imported = package_of(one.importer), package_of(one.imported)
    if importer == imported:
        families = family_of(one.importer), family_of(one.imported)
        return families[0] == families[1] or families[1] in FAMILY_MAY_IMPORT.get(str(families[0]), ())
    if importer in APART:
        return imported in APART[importer]
    return LEVEL[imported] < LEVEL[importer]


def circles() -> set[tuple[str, str]]:
    """The imports between modules that import each other, directly or by way of others."""
    imported_by: dict[str, set[str]] = {}
    for one in INTERNAL:
        imported_by.setdefault(one.importer, set()).add(one.imported)

    def reaches(start: str, end: str) -> bool:
        seen, todo = {start}, [start]
        while todo:
            for following in imported_by.get(todo.pop(), set()) - seen:
                if following == end:
                    return True
                seen.add(following)
                todo.append(following)
        return False

    return {one.edge for one in INTERNAL if one.importer == one.imported or reaches(one.imported, one.importer)}


def test_every_module_has_a_level():
    assert {package_of(module) for module in FILES} == set(LEVEL)


def test_imports_go_one_way_and_in_no_circle():
    """Downwards only; no family imports another, except that load shedding is made of window joins."""
    broken = {one.edge for one in INTERNAL if not is_allowed(one)} | circles()
    assert broken == set()


def test_only_the_spark_package_imports_pyspark():
    broken = [
        str(one)
        for one in IMPORTS
        if one.imported.partition(".")[0] in SPARK and not one.typing_only and package_of(one.importer) != "spark"
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("dovetail", ("pyspark", "sqlglot", "numba", "pandas", "matplotlib", "pydantic", "yaml", "rich")),
        ("dovetail.families.theta.stream", ("pyspark", "sqlglot", "matplotlib", "pydantic")),
        ("dovetail.families.window.stream", ("pyspark", "sqlglot", "matplotlib", "pydantic")),
        ("dovetail.jobs.read", ("pyspark", "matplotlib")),
        # Extras: a plot needs nothing of the command's.
        ("dovetail.plots.charts", ("pyspark", "matplotlib", "pydantic", "yaml", "rich", "typer")),
        ("dovetail.command.cli", ("pyspark", "sqlglot", "numba", "pandas", "matplotlib")),
    ],
)
def test_a_module_loads_only_what_it_needs(module, unneeded):
    code = f"import sys, {module}; print(*[name for name in {unneeded!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
