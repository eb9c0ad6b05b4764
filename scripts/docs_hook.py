"""Links from docs/ to files of the checkout are plain text on the site, which has no such files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, /, *, page: Any, **_: Any) -> str:
    """Called by mkdocs; a file that is not in the checkout fails the build."""
    folder = Path(page.file.abs_src_path).parent

    def plain(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {link[2]}, which is not there")
        name = target.relative_to(ROOT).as_posix()
        return f"`{name}`" if link[1] == name else f"{link[1]} (`{name}`)"

    return OUTSIDE.sub(plain, markdown)
