"""scripts/link_check.py finds what leads nowhere in a built site."""

from __future__ import annotations

from pathlib import Path

from scripts.link_check import broken


def test_broken_links_sources_and_anchors_are_found(tmp_path: Path) -> None:
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide/index.html").write_text('<h2 id="here">x</h2><a href="../">up</a>')
    good = '<a href="guide/#here">1</a><a href="#top" id="top">2</a><a href="https://a.b/c">3</a>'
    (tmp_path / "index.html").write_text(good)
    assert broken(tmp_path) == []
    bad = '<a href="guide/#gone">1</a><audio src="no.mp3"></audio><a href="nowhere/">2</a>'
    (tmp_path / "index.html").write_text(bad)
    expected = ["guide/#gone", "no.mp3", "nowhere/"]
    assert broken(tmp_path) == [f"index.html: {link}" for link in expected]
