"""Tags are followed or reported, never read; everything else in a text stays as it is."""

from __future__ import annotations

import pytest

from benchmarks import markup as proof
from nightingale.core import Options
from nightingale.errors import LanguageError, MarkupError, TextError
from nightingale.text import markup as marking
from nightingale.text.markup import Mark, Markup, Style, Substitution
from nightingale.text.markup.lexer import Lexer, Token
from nightingale.text.parts import text_parts
from nightingale.text.split import TextPart
from nightingale.text.spoken import spoken_parts
from nightingale.text.structure import MARK, STAND_IN, Break
from nightingale.text.tokenizer import EnglishTokenizer, MultilingualTokenizer

ORDINARY = [
    "a < b and c > d, x<y; 1 <2",
    "see [1], [2, 3] and [link](http://x.org) or [pause](x)",
    "if x<y and z>w, <y and z>, < b>, <b c>, <3>, <_x>, <!-- no --> &amp; &lt;",
    "<john@example.com>, <https://example.com/a>, x <y z=5, </ b>, <a='b'> <x y",
    "array[voice] = [x:voice] if x <break we stop",
    "# Title\n\n* one\n* two [ ] [x] \\[ ]] [[",
    "AT&T, <3, ->, <-, <=, << [",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_unchanged(text: str) -> None:
    ignored: list[str] = []
    marked = Markup("en", on_ignored=ignored.append)
    assert marked.whole(text) == text
    assert not ignored
    assert not marked.marks


def read(text: str, language: str = "en") -> tuple[str, list[Mark], list[str]]:
    ignored: list[str] = []
    marked = Markup(language, on_ignored=ignored.append)
    left = marked.whole(text).replace(MARK, "|").replace(STAND_IN, "§")
    return left, list(marked.marks), ignored


@pytest.mark.parametrize(
    ("tag", "pause_ms"),
    [
        ("[pause:500ms]", 500), ("[pause:1.5s]", 1500), ("[Pause: 2 ]", 2000), ("[pause]", 750),
        ("<break time='250ms'/>", 250), ("<break time=\"1s\">", 1000), ("<break/>", 750),
        ('<break strength="none"/>', 0), ('<BREAK Strength="x-strong" />', 1250),
    ],
)  # fmt: skip
def test_pauses_in_both_notations(tag: str, pause_ms: int) -> None:
    assert read(f"a {tag} b") == ("a | b", [Mark(Style(), pause_ms)], [])


def test_voices_languages_and_rates_nest_and_end() -> None:
    left, marks, ignored = read(
        '<speak xml:lang="en-US">A <voice name="anna">B <prosody rate="80%">C</prosody> '
        '<lang xml:lang="de">D</lang></voice> E &amp; F</speak> &amp;'
    )
    assert left == "A |B |C| |D|| E & F &amp;"
    assert [mark.style for mark in marks] == [
        Style("anna"), Style("anna", None, 0.8), Style("anna"), Style("anna", "de"), Style("anna"),
        Style(),
    ]  # fmt: skip
    assert not ignored
    script = read("[voice:anna] Hi. [voice:bob] Yes. [/voice] So.")
    assert [mark.style.voice for mark in script[1]] == ["anna", None, "bob", None]


def test_what_is_not_followed_is_reported_and_not_read() -> None:
    for text, tags in (
        ("<emphasis>a</emphasis>", ["<emphasis>"] * 2),
        ('<mstts:express-as style="x">a', ["<mstts:express-as>"]),
        ("<speak><mark name='m'/>a</speak>", ["<mark>"]),
        ('<prosody rate="9%">a</prosody>', ["<prosody>"]),
        ('<prosody pitch="high">a</prosody>', ["<prosody>"] * 2),
        ('<break time="soon"/>a', ["<break>"]),
        ('<break time="1s" a', ["<break>"]),
        ("[pause:soon]a", ["[pause]"]),
        ("a[/voice]</voice>", ["[/voice]", "</voice>"]),
        ("<sub>a</sub>", ["<sub>"]),
        ('<wrong x="1">a</wrong>', ["<wrong>"] * 2),
        ("<b>a</b><br/>", ["<b>"] * 2 + ["<br>"]),
        ("<a href=x.org target='_blank' hidden>a</a >", ["<a>"] * 2),
        ("<input disabled />a", ["<input>"]),
        ("<имя>a", ["<имя>"]),
        ("<img alt='a > b' src=x>a", ["<img>"]),
        ('<wrong x="1" a', ["<wrong>"]),
        ("[laugh] a [Sigh]", ["[laugh]", "[sigh]"]),
        ("a [pause:1s", ["[pause]"]),
    ):
        left, _, ignored = read(text)
        assert (left.replace("|", "").strip(), ignored) == ("a", tags), text


def test_tags_of_html_keep_words_apart_and_words_together() -> None:
    assert read("one<br>two <b>bold</b>er")[0] == "one two bolder"


def test_a_sign_that_is_no_tag_does_not_wait_for_one() -> None:
    """In arriving text, `x < y` is read as soon as it cannot become a tag."""
    lexer = Lexer()
    assert "".join(token.text for token in lexer.feed("If x <y and so it")) == "If x "
    assert "".join(token.text for token in lexer.feed(" goes on")) == "<y and so it goes on"


def test_sounds_pass_where_the_model_has_them() -> None:
    assert Markup("en", {"[laugh]"}).whole("Ha [laugh] ha [sigh]") == "Ha [laugh] ha "


def test_each_limit_has_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "MAX_TAGS", 50)
    for text, what in (
        ("[pause:10001ms]", "at most 10000 ms"),
        ("a[pause:10s]" * 8, "together"),
        ("[pause:1ms]" * 51, "more than 50 tags"),
        ("<prosody rate='1'>" * 33, "more than 32 tags are open"),
        ("".join(f"[voice:v{n}]a" for n in range(17)), "more than 16 voices"),
        ("<spell>" + "a" * 1001, "over 1000 characters"),
    ):
        with pytest.raises(MarkupError, match=what):
            Markup().whole(text)
    with pytest.raises(TextError, match="surrogate"):
        Markup().whole("a" + MARK)


def test_written_words_stay_the_users_own() -> None:
    text = 'The <sub alias="World Wide Web, 3 km">WWW</sub> of <spell>aB-3</spell>, '
    text += "12 <spell>x</spell>"
    (part,) = spoken_parts(text, "en", "auto")
    assert part.spoken == "The World Wide Web, three kilometers of A B dash three, twelve X"
    assert [word.written for word in part.words()] == ["The", "WWW", "of", "aB-3,", "12", "x"]
    assert part.written == "The WWW of aB-3, 12 x"


def test_parts_carry_what_mark_up_asks_for(multilingual: MultilingualTokenizer) -> None:
    text = (
        "One, [pause:500ms] two.\n\n[voice:anna]Three[/voice], four. "
        '<lang xml:lang="de-DE">Am 3. Mai.</lang> <prosody rate="1.25">Five [pause:1s]</prosody>'
    )
    markup = Markup("en")
    for given in (text, [text], iter(text)):
        markup = Markup("en")
        parts = text_parts(given, multilingual, Options(), markup, [], is_single=True)
        assert list(filter(None, parts)) == [
            TextPart("One,"),
            TextPart("two.", Break.CLAUSE, pause_ms=500),
            TextPart("Three", Break.PARAGRAPH, voice="anna"),
            TextPart("four.", Break.CLAUSE),
            TextPart(
                "Am dritten Mai.", Break.SENTENCE, (("Am", 1), ("3. Mai.", 2)), language="de-DE"
            ),
            TextPart("Five", Break.SENTENCE, speed=1.25),
            TextPart("", pause_ms=1000),
        ]


def test_a_language_that_the_model_does_not_speak_is_refused_at_once(
    english: EnglishTokenizer,
) -> None:
    text = 'Hello. <lang xml:lang="de">Hallo.</lang>'
    with pytest.raises(LanguageError, match="'de'"):
        text_parts(text, english, Options(), Markup("en"), [], is_single=True)


def test_mark_up_can_be_switched_off(english: EnglishTokenizer) -> None:
    off = Options(markup="off")
    parts = text_parts("Go [pause:1s] on.", english, off, Markup("en"), [], is_single=True)
    assert "pause" in next(filter(None, parts)).text


def test_malformed_mark_up_never_raises_and_is_never_read() -> None:
    """A small run of `benchmarks/markup.py`."""
    found = proof.fuzz(200, seed=7)
    assert found["strings"] == 200
    assert not found["faults"], found["examples"]
    assert found["with_tags"] > 100
    assert found["errors"]


class LeakyLexer(Lexer):
    """A planted fault: tags are text as well."""

    def feed(self, piece: str):  # type: ignore[no-untyped-def]
        for token in super().feed(piece):
            yield Token(token.start, token.end, "break" if token.tag else token.text, None)


class ShiftedLexer(Lexer):
    """Another one: places are one too high."""

    def feed(self, piece: str):  # type: ignore[no-untyped-def]
        for token in super().feed(piece):
            yield Token(token.start + 1, token.end + 1, token.text, token.tag)


@pytest.mark.parametrize("lexer", [LeakyLexer, ShiftedLexer])
def test_the_fuzz_finds_planted_faults(lexer: type[Lexer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "Lexer", lexer)
    monkeypatch.setattr(proof, "Lexer", lexer)
    assert proof.fuzz(30, seed=7)["faults"]


def test_substitutions_are_said_in_the_language_of_their_part() -> None:
    assert Substitution("B2").spoken("de") == "B zwei"
    assert Substitution("x", "5 km").spoken("de") == "fünf Kilometer"
    assert Substitution("B2").spoken(None) == "B 2"
