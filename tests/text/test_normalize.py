"""Punctuation: one line a case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightingale.errors import TextError
from nightingale.text.normalize import ENGLISH, MULTILINGUAL, TURBO, Punctuation, normalize

EVERYWHERE = [
    ("hello.", "Hello."),
    ("élan.", "Élan."),
    ("ßo.", "SSo."),
    (" hello.", "hello."),  # a leading space keeps the small letter
    ("a  b\t\n c.", "A b c."),
    ("No end", "No end."),
    ("Gone - ", "Gone -"),
    ("So!", "So!"),
    ("So?", "So?"),
    ("So,", "So,"),
    ("So-", "So-"),
    ("So: yes.", "So, yes."),
    ("Wait… what?", "Wait,  what?"),
    ("Wait …", "Wait,"),
    ("One : two.", "One, two."),
    ("Ten—twelve.", "Ten-twelve."),
    ("Ten–twelve.", "Ten-twelve."),
    ("“Yes”", '"Yes".'),
    ("‘Yes’ don’t.", "'Yes' don't."),
    ("…", ","),
    ("😀", "😀."),
]
NOT_IN_TURBO = [
    ("Wait... what?", "Wait,  what?", "Wait... what?"),
    ("Wait....", "Wait, .", "Wait...."),
    ("One - two.", "One, two.", "One - two."),
    ("One; two.", "One,  two.", "One; two."),
    ("One ; two.", "One,  two.", "One ; two."),
]


@pytest.mark.parametrize("rules", [ENGLISH, MULTILINGUAL, TURBO])
@pytest.mark.parametrize(("text", "expected"), EVERYWHERE)
def test_every_family_reads_it_so(text: str, expected: str, rules: Punctuation) -> None:
    assert normalize(text, rules) == expected


@pytest.mark.parametrize(("text", "expected", "in_turbo"), NOT_IN_TURBO)
def test_turbo_and_nano_lack_three_rules(text: str, expected: str, in_turbo: str) -> None:
    assert normalize(text, ENGLISH) == expected
    assert normalize(text, MULTILINGUAL) == expected
    assert normalize(text, TURBO) == in_turbo


@pytest.mark.parametrize("end", ["、", "，", "。", "？", "！"])
def test_only_multilingual_takes_full_width_marks_for_an_end(end: str) -> None:
    assert normalize("好" + end, MULTILINGUAL) == "好" + end
    assert normalize("好" + end, ENGLISH) == "好" + end + "."
    assert normalize("好" + end, TURBO) == "好" + end + "."


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000"])
@pytest.mark.parametrize("rules", [ENGLISH, MULTILINGUAL, TURBO])
def test_a_text_without_words_is_refused(text: str, rules: Punctuation) -> None:
    with pytest.raises(TextError, match="nothing to say"):
        normalize(text, rules)


def test_half_a_character_is_refused_with_its_place() -> None:
    with pytest.raises(TextError, match=r"character 2 of the text, U\+D83D"):
        normalize("ab\ud83d", ENGLISH)


@given(st.text().filter(str.strip), st.sampled_from([ENGLISH, MULTILINGUAL, TURBO]))
def test_any_text_gets_an_end_and_loses_the_odd_marks(text: str, rules: Punctuation) -> None:
    result = normalize(text, rules)
    assert result.endswith(rules.enders)
    assert not set(result) & set("…:—–“”‘’")
