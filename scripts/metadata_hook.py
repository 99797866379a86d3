"""What the package page shows, made when the package is built: its links, and the README with absolute ones.

Both come from one address, `repository` in pyproject.toml.  A package page knows nothing of the files beside the
README, so its pictures and links name the files of the released tag.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PLACEHOLDER = "OWNER"
# An image or a link whose target is a file beside the README.
RELATIVE = re.compile(r"(?P<image>!?)(?P<label>\[[^\]]*\])\((?!\w+:|#|/)(?P<path>[^)\s]+)\)")


def urls(repository: str, version: str) -> dict[str, str]:
    """The links of the package page, by the names that it gives icons to."""
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
    }


def absolute(text: str, repository: str, version: str) -> str:
    """A page of Markdown whose relative images and links lead to the files of a tag.

    Examples
    --------
    >>> absolute("![a](docs/a.svg) [b](b.md#c) [d](#d)", "https://host/us/it", "1.0")
    '![a](https://host/us/it/raw/v1.0/docs/a.svg) [b](https://host/us/it/blob/v1.0/b.md#c) [d](#d)'
    """

    def full(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}{found['label']}({repository}/{kind}/v{version}/{found['path']})"

    return RELATIVE.sub(full, text)


class PackagePage(MetadataHookInterface):
    """Hatchling's hook: the two dynamic fields of pyproject.toml that are made here."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `urls` and `readme`; the version is known by now."""
        repository, version = self.config["repository"].rstrip("/"), metadata["version"]
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = urls(repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, version)}
