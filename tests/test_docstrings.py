"""The docstrings of public names are complete: parameters with types, what comes back, an example that runs."""

from __future__ import annotations

import pytest
from numpydoc.validate import validate

import dovetail
from dovetail.plots import charts

# The checks of numpydoc; https://numpydoc.readthedocs.io/en/latest/validation.html describes them.
CHECKS = {
    "GL03": "double blank lines",
    "GL06": "an unknown section",
    "GL07": "sections in the wrong order",
    "GL08": "no docstring",
    "PR01": "a parameter that is not documented",
    "PR02": "a parameter that does not exist",
    "PR03": "parameters in the wrong order",
    "PR04": "a parameter without a type",
    "PR07": "a parameter without a description",
    "PR10": "no space before the colon of a parameter",
    "RT01": "no Returns section",
    "RT02": "the first line of Returns is not the type",
    "RT03": "a return value without a description",
    "SA04": "a name under See Also without a description",
    "EX01": "no Examples section",
}
# The library raises these; nobody else makes them.
CHECKS_OF_ERRORS = {"GL03", "GL06", "GL08"}

NAMES = sorted(name for name in dovetail.__all__ if name != "plot")
PLOTS = [f"plot.{name}" for name in charts.__all__]


def complaints(name: str) -> list[str]:
    """What is wrong with the docstring of a public name."""
    found = charts if name.startswith("plot.") else dovetail
    public = getattr(found, name.removeprefix("plot."))
    is_error = isinstance(public, type) and issubclass(public, Exception)
    checks = CHECKS_OF_ERRORS if is_error else CHECKS
    errors = validate(f"{public.__module__}.{public.__qualname__}")["errors"]
    return [f"{code}: {text}" for code, text in errors if code in checks]


@pytest.mark.parametrize("name", [*NAMES, *PLOTS])
def test_the_docstring_is_complete(name):
    assert complaints(name) == []
