"""Links and sources within a built site: each file and each anchor has to be there."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def broken(site: Path) -> list[str]:
    """What leads nowhere, as 'page: link'."""
    pages = {file: _Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}
    return [
        f"{file.relative_to(site)}: {link}"
        for file, page in pages.items()
        for link in page.links
        if file.name != "404.html" and not _leads_somewhere(file, link, pages)
    ]


def _leads_somewhere(file: Path, link: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    anchor = unquote(parts.fragment)
    return target.is_file() and (target not in pages or anchor in pages[target].anchors)


if __name__ == "__main__":
    found = broken(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "links: all lead somewhere")
    sys.exit(bool(found))
