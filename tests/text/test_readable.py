"""What each model can read of a text: the rest is taken out and reported, or the text refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nightingale
from nightingale.errors import LanguageError, TextError
from nightingale.text.languages import LANGUAGES, LanguageWarning
from nightingale.text.readable import MAX_UNSPOKEN, Reader, is_speakable
from nightingale.text.split import SINGLE, TextPart, split, split_stream
from nightingale.text.structure import Break
from nightingale.text.tokenizer import (
    EnglishTokenizer,
    FledglingTokenizer,
    Gpt2Tokenizer,
    MultilingualTokenizer,
    TextTokenizer,
)

quiet = pytest.mark.filterwarnings("ignore::nightingale.text.languages.LanguageWarning")
BUNDLED = Path(nightingale.__file__).parent / "fledgling/tokenizer.json"


@pytest.fixture(scope="session")
def fledgling() -> FledglingTokenizer:
    """The bundled model's own."""
    return FledglingTokenizer(BUNDLED)


REFUSED = [
    "你好，世界。",
    "Привет, как дела?",
    "🎉🎉",
    "...",
    "שלום",
    "สวัสดี",
    "«»",
    "👨‍👩‍👧",
    "[ ]",
    "½",
]

EVERYDAY = [  # text, what is left of it, what is reported
    ("The U.K. signed, in 1984.", "The U.K. signed, in 1984.", ""),
    ("It costs $19.99, £5 or €1,250.50.", "It costs $19.99, £5 or €1,250.50.", ""),
    ("It is 21.5°C at 7:30 PM. 🙂", "It is 21.5 C at 7:30 PM.", "°🙂"),
    ("On 12/03/2025 at 3:45 PM.", "On 12 03 2025 at 3:45 PM.", "/"),
    ("Visit https://example.com/docs?page=2", "Visit https:example.com docs?page 2", "/="),
    ("Write to anna@example.org.", "Write to anna example.org.", "@"),
    ("**Important:** use `pip install`", "Important: use pip install", "*`"),
    ("<b>Hello</b> world.", "b Hello b world.", "<>/"),
    ("Dr. Smith, call 555-867-5309 now.", "Dr. Smith, call 555-867-5309 now.", ""),
    ("NASA and the FBI use HTTP, JSON", "NASA and the FBI use HTTP, JSON", ""),
]

SPACING = [
    ("Hello 🎉 world", "Hello world", "🎉"),
    ("Hello 🎉.", "Hello.", "🎉"),
    ("Hello, 🎉.", "Hello,", "🎉"),
    ("🎉 hello", "hello", "🎉"),
    ("hello 🎉", "hello", "🎉"),
    ("wow🎉🎉great", "wow great", "🎉"),
    ("“Wow 🎉” he said (🎉).", "“Wow” he said.", "🎉"),
    ("(🎉wow)", "(wow)", "🎉"),
    ("Привет, как дела? Hello.", "Hello.", "Приветкадл"),
    ("I said Привет, friend", "I said, friend", "Привет"),
    ("你好。Hello", "Hello", "你好"),
    ("One.\n\n🎉\n\nTwo.", "One.\n\nTwo.", "🎉"),
    ("A family: 👨‍👩‍👧 ❤️", "A family:", "👨👩👧❤"),
    ("Café — naïve “x”…", "Café — naïve “x”…", ""),
    ("£5 and £ and −5 and −", "£5 and and −5 and", "£−"),
    ("[x] and [UNK] and [STOP] {y}", "x and UNK and STOP y", ""),
    ("٣ pears", "٣ pears", ""),  # a digit is spelled, whatever its script
    ("m² and ﬁre and Ａ", "m² and ﬁre and Ａ", ""),
]


@pytest.mark.parametrize(("text", "left", "unspoken"), [*EVERYDAY, *SPACING])
def test_the_bundled_model_reports_what_it_cannot_read(
    text: str, left: str, unspoken: str, fledgling: FledglingTokenizer
) -> None:
    assert fledgling.readable(text) == (left, list(unspoken))


def parts_of(
    tokenizer: TextTokenizer, text: str | Iterable[str], language: str | None = "en"
) -> tuple[list[str | None], str]:
    reader = Reader(tokenizer, language, [])
    parts: Iterator[TextPart | None] = (
        reader.whole(text, lambda text: split(text, SINGLE))
        if isinstance(text, str)
        else reader.arriving(text, lambda pieces: split_stream(pieces, SINGLE))
    )
    if isinstance(text, str):
        parts = filter(None, parts)  # None: one more was prepared
    return [None if part is None else part.text for part in parts], "".join(reader.unspoken)


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_without_a_known_letter_is_refused(text: str, fledgling: FledglingTokenizer) -> None:
    for given_ in (text, list(text)):
        with pytest.raises(TextError, match="nothing to say"):
            parts_of(fledgling, given_)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Привет", "П р и в е т; the text is in Cyrillic: get the model with `nightingale pull "
         "multilingual` and give the language ru"),
        ("你好", "give the language zh or ja"),
        ("東京タワー", "give the language ja"),
        ("한국", "give the language ko"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_unknown_and_what_to_do(
    text: str, advice: str, fledgling: FledglingTokenizer
) -> None:
    with pytest.raises(TextError, match="it reads English") as caught:
        parts_of(fledgling, text)
    assert str(caught.value).endswith(advice)


def test_the_right_language_is_advised_where_the_model_has_it(
    multilingual: MultilingualTokenizer,
) -> None:
    with (
        pytest.raises(TextError, match="characters: give the language zh or ja"),
        pytest.warns(LanguageWarning, match="but the language is English"),
    ):
        parts_of(multilingual, "你好")


def test_what_is_left_out_is_known_before_the_first_part(fledgling: FledglingTokenizer) -> None:
    reader = Reader(fledgling, "en-US", [])
    parts = reader.whole("One is first. Two is last 🎉.", lambda text: split(text, SINGLE))
    assert not reader.unspoken  # nothing is computed before it is asked for
    assert next(filter(None, parts)) == TextPart("One is first.")
    assert reader.unspoken == ["🎉"]


def test_arriving_text_is_reported_part_by_part(fledgling: FledglingTokenizer) -> None:
    text = "Well, hello. Как дела? Так себе. And °C so on. 🎉"
    parts, unspoken = parts_of(fledgling, list(text))
    assert parts == ["Well, hello.", "And C so on."]
    assert set(unspoken) == set("КакделТсб°🎉")  # the one behind the last sentence, too
    assert parts_of(fledgling, ["", "Hello ", "", "you."])[0] == [None, None, "Hello you."]
    assert parts_of(fledgling, ["  ", "\n"]) == ([], "")


def test_layout_marks_are_not_reported_and_pauses_of_skipped_parts_stay(
    fledgling: FledglingTokenizer,
) -> None:
    reader = Reader(fledgling, "en", [])
    said = "# Title\n\n* one thing\n* two things\n\nПривет, как дела?\nGo on.\n\n🎉"
    assert list(filter(None, reader.whole(said, lambda text: split(text, SINGLE)))) == [
        TextPart("Title", Break.NONE),
        TextPart("one thing", Break.HEADING),
        TextPart("two things", Break.ITEM),
        TextPart("Go on.", Break.PARAGRAPH),
    ]
    assert "#" not in reader.unspoken
    assert "🎉" in reader.unspoken


@pytest.mark.slow
def test_no_more_than_a_bounded_number_is_reported(fledgling: FledglingTokenizer) -> None:
    text = "Hello " + "".join(chr(0x4E00 + n) for n in range(5000))
    assert len(parts_of(fledgling, text)[1]) == MAX_UNSPOKEN
    with pytest.raises(TextError) as caught:
        parts_of(fledgling, text[6:])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["a\ud800", "  ", ""])
def test_a_broken_or_empty_text_is_the_same_error_as_before(
    text: str,
    fledgling: FledglingTokenizer,
    multilingual: MultilingualTokenizer,
    turbo: Gpt2Tokenizer,
) -> None:
    for tokenizer in (fledgling, multilingual, turbo):
        with pytest.raises(TextError, match=r"surrogate|nothing to say"):
            parts_of(tokenizer, text)
    with pytest.raises(TextError, match="surrogate"):
        multilingual.readable("a\ud800", "ja")


def test_the_language_is_checked_as_for_speaking(
    english: EnglishTokenizer, turbo: Gpt2Tokenizer
) -> None:
    for tokenizer in (english, turbo):
        assert tokenizer.readable("Hello", "en-GB").text == "Hello"
        with pytest.raises(LanguageError):
            tokenizer.readable("Hello", "de")


def test_english_letters_lose_marks_that_the_file_does_not_have(english: EnglishTokenizer) -> None:
    assert english.readable("Café [laughter] ﬁne ½ ß") == ("Cafe [laughter] fine", ["½", "ß"])


@pytest.mark.parametrize(
    ("language", "text", "left", "unspoken"),
    [
        (None, "ok [LAUGHTER] [sigh]", "ok [LAUGHTER] [sigh]", ""),
        ("ru", "Сто ёлок й", "Сто ёлок й", ""),
        ("tr", "İyi ığ", "İyi ığ", ""),
        ("ko", "한국 사람", "한국 사람", ""),
        ("fr", "Été ½ €", "Été", "½€"),
        ("zh", "日曰。", "日曰。", ""),
        ("zh", "日𠮷龘好", "日好", "𠮷龘"),
        ("en", "日 ok", "ok", "日"),  # the table is for Chinese alone
        ("ja", "時々、東京タマ。", "時々、東京タマ。", ""),
        ("ja", "東京🎉café龘々", "東京 cafe", "🎉龘々"),
        ("ja", "東京cafe\u0301", "東京cafe", ""),
        ("hi", "क\u093e है", "क\u093e है", ""),
    ],
)
def test_each_language_is_judged_after_its_own_step(
    language: str | None, text: str, left: str, unspoken: str, multilingual: MultilingualTokenizer
) -> None:
    assert multilingual.readable(text, language) == (left, list(unspoken))


def test_turbo_reads_latin_letters_and_what_stands_between_them(turbo: Gpt2Tokenizer) -> None:
    for plain in ("[laugh] Café, 20 °C — “ok” £5 €6…", "Łódź", "x\u0301"):
        assert turbo.readable(plain) == (plain, [])
    assert turbo.readable("Hi Миша 🎉 2™ <|endoftext|>!") == ("Hi 2TM |endoftext|!", [*"Миша🎉<>"])
    with pytest.raises(TextError, match="Cyrillic"):
        parts_of(turbo, "Миша!")


def test_a_typed_control_token_is_broken_even_where_brackets_are_known(
    files: Path, tmp_path: Path
) -> None:
    content = json.loads((files / "english.json").read_text(encoding="utf-8"))
    free = [name for name in content["model"]["vocab"] if name.startswith("[unused")][:2]
    for name, bracket in zip(free, "[]", strict=True):
        content["model"]["vocab"][bracket] = content["model"]["vocab"].pop(name)
    (tmp_path / "brackets.json").write_text(json.dumps(content), encoding="utf-8")
    tokenizer = EnglishTokenizer(tmp_path / "brackets.json")
    for text in ("a [b] [UNK] c", "[[UNK]]", "[UжNK] a", "[U[UжNK]NK] a"):
        assert 1 not in tokenizer.encode(tokenizer.readable(text).text)
    assert tokenizer.readable("a [b]").text == "a [b]"


@pytest.mark.parametrize(
    ("text", "language", "is_odd"),
    [
        ("Привет", "en", True), ("Hello", "ru", True), ("Привет", "ru-RU", False),
        ("Hello", "de", False), ("Hello, мир", "en", False), ("123", "ru", False),
        ("東京", "ja", False), ("こんにちは", "zh", True), ("Hello", None, False),
    ],
)  # fmt: skip
def test_letters_that_the_language_is_not_written_in_are_warned_of(
    text: str, language: str | None, is_odd: bool, multilingual: MultilingualTokenizer
) -> None:
    reader = Reader(multilingual, language, [])
    if is_odd:
        with pytest.warns(LanguageWarning, match="the text is in"):
            reader._note_script(text)
    else:
        reader._note_script(text)


SCRIPTS = "AzÉß09 .,!?“”’…—-[]()*/°£€%🎉👨\u200d\ufe0f♥½²ﬁЖйёאبक\u093e한ᄒ東京々〇𠮷龘がカヽ٣"
SCRIPTS += "\u0301\u3099\n\t\f−⁄"
samples = st.lists(
    st.one_of(
        st.sampled_from(SCRIPTS),
        st.sampled_from(["[UNK]", "[laughter]", "[SPACE]", "[STOP]", "<|endoftext|>", "£5", " "]),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=40,
).map("".join)


def _check_property(tokenizer: TextTokenizer, text: str, language: str | None) -> None:
    if not text.strip():
        return
    left, unspoken = tokenizer.readable(text, language)
    assert len(set(unspoken)) == len(unspoken)
    assert set(unspoken) <= set(text)
    if is_speakable(left):
        assert tokenizer.readable(left, language) == (left, [])
        unknown = tokenizer.unknown  # type: ignore[attr-defined]
        assert unknown is not None
        assert unknown not in tokenizer.encode(left, language)


@pytest.mark.parametrize("n_texts", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_english_models_never_see_an_unknown_token(
    n_texts: int, english: EnglishTokenizer, fledgling: FledglingTokenizer, turbo: Gpt2Tokenizer
) -> None:
    @settings(deadline=None, max_examples=n_texts)
    @given(text=samples)
    def check(text: str) -> None:
        for tokenizer in (english, fledgling, turbo):
            _check_property(tokenizer, text, "en")

    check()


@quiet
@pytest.mark.parametrize("n_texts", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_the_multilingual_model_never_sees_an_unknown_token(
    n_texts: int, multilingual: MultilingualTokenizer
) -> None:
    @settings(deadline=None, max_examples=n_texts)
    @given(text=samples, language=st.sampled_from([None, *LANGUAGES, "ja", "zh"]))
    def check(text: str, language: str | None) -> None:
        _check_property(multilingual, text, language)

    check()


HARD = ["🎉", "a🎉", "é ", " ", "[U", "1,", "£ ", "−", "ж, ", "[", "東", "々東", "\u0301", "\n🎉\n"]


@pytest.mark.slow
@pytest.mark.timeout(30)  # minutes if it looked back over the text for every character
@pytest.mark.parametrize("piece", HARD)
def test_a_long_text_takes_no_more_than_linear_work(
    piece: str, fledgling: FledglingTokenizer
) -> None:
    assert fledgling.readable("a " + piece * 50_000 + " b").text
