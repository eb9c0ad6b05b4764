"""Digits become the words that people say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightingale.text.numbers import number, ordinal, spell


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("0", "zero"),
        ("I have 7 cats.", "I have seven cats."),
        ("21", "twenty-one"),
        ("884 yards", "eight hundred and eighty-four yards"),
        ("1,000", "one thousand"),
        ("12,345,678", "twelve million three hundred and forty-five thousand six hundred and "
                       "seventy-eight"),
        ("9,000,000,000,000", "nine zero zero zero zero zero zero zero zero zero zero zero zero"),
        ("1984", "nineteen eighty-four"),
        ("1900", "nineteen hundred"),
        ("1905", "nineteen oh five"),
        ("2000", "two thousand"),
        ("2007", "two thousand seven"),
        ("2026", "twenty twenty-six"),
        ("3.14", "three point one four"),
        ("1999.5", "one thousand nine hundred and ninety-nine point five"),
        ("It is -5 degrees", "It is minus five degrees"),
        ("pages 5-7", "pages five-seven"),
        ("at 10:45.", "at ten forty-five."),
        ("at 6:05", "at six oh five"),
        ("at 9:00 sharp", "at nine o'clock sharp"),
        ("the 1st, 2nd, 3rd, 12th", "the first, second, third, twelfth"),
        ("the 20th and 33rd", "the twentieth and thirty-third"),
        ("the 100th", "the one hundredth"),
        ("25%", "twenty-five percent"),
        ("3.5 %", "three point five percent"),
        ("$1", "one dollar"),
        ("$20.", "twenty dollars."),
        ("$3.50", "three dollars and fifty cents"),
        ("£0.01", "one penny"),
        ("€ 2.02", "two euros and two cents"),
        ("$0", "zero dollars"),
        ("007", "zero zero seven"),
        ("5551234", "five five five one two three four"),
        ("score 3:50000", "score three:fifty thousand"),
        ("No digits here.", "No digits here."),
        ("5" * 5000, " ".join(["five"] * 5000)),
        ("$" + "5" * 20, " ".join(["five"] * 20)),
    ],
)  # fmt: skip
def test_digits_are_spelled(written: str, said: str) -> None:
    assert spell(written) == said


@given(st.text(max_size=60))
def test_no_ascii_digit_is_left(text: str) -> None:
    assert not re.search("[0-9]", spell(text))


@given(st.integers(0, 10**12 - 1))
def test_every_number_has_a_name_of_its_own(n: int) -> None:
    assert re.fullmatch("[a-z -]+", number(n))
    assert number(n) != number(n + 1)
    assert ordinal(n) not in (number(n), ordinal(n + 1))
