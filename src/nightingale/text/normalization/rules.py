"""Numbers in words by the rules of CLDR, as `unicode-rbnf` reads them from its files.

The same words as that library's own evaluation gives, in a fraction of its time: what does not
depend on the number is computed once for each rule, and numbers below 1,000, of which others
consist, are kept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from math import ceil, floor, log
from typing import NamedTuple

from unicode_rbnf.engine import (
    PluralFormatPart,
    RbnfEngine,
    RbnfRule,
    RbnfRulePart,
    ReplaceRulePart,
    SubRulePart,
    SubType,
    TextRulePart,
)
from unicode_rbnf.plural_rules import PluralType

_N_KEPT = 1000
_DIGIT, _DIGITS = re.compile(r"\d"), "written in digits"  # no such rules
_QUOTIENT, _REMAINDER, _NUMBER = range(3)


class _Part(NamedTuple):
    """Text; or a number in words, or a word that agrees with it in number."""

    before: str = ""
    which: int = _NUMBER
    rules: str = ""
    is_optional: bool = False  # left out if the number is zero
    after: str = ""
    plural: int | None = None  # place in the list of forms


class _Rule(NamedTuple):
    below: int  # divisor of numbers below the other one; 0: there is none
    above: int
    parts: tuple[_Part, ...]


class NumberRules:
    """Of one language."""

    def __init__(self, language: str) -> None:
        self._language, self._kept = language, dict[tuple[int, str], str]()
        self._forms = list[PluralFormatPart]()
        self._rules = dict[str, tuple[list[int], list[_Rule]]]()
        for name, rules in RbnfEngine.for_language(language).rulesets.items():
            bases = sorted(rules.numeric_rules)
            self._rules[name] = bases, [self._rule(rules.numeric_rules[n], name) for n in bases]
        self._agreeing = lru_cache(4 * _N_KEPT)(self._form)

    def __contains__(self, name: str) -> bool:
        return name in self._rules

    def spell(self, n: int, name: str) -> str:
        """A whole number, not negative; KeyError: the language has no such rules for it."""
        if n >= _N_KEPT:
            return self._spell(n, name)
        text = self._kept.get((n, name))
        if text is None:
            text = self._kept[n, name] = self._spell(n, name)
        return text

    def _spell(self, n: int, name: str) -> str:
        bases, rules = self._rules[name]
        below, above, parts = rules[max(0, bisect_right(bases, n) - 1)]
        numbers = (*divmod(n, above if n >= above else below), n) if below else (0, 0, n)
        said = ""
        for before, which, rule, is_optional, after, plural in parts:
            if plural is not None:
                said += self._agreeing(plural, numbers[which])
            elif not rule:
                said += before
            elif numbers[which] or not is_optional:
                said += before + self.spell(numbers[which], rule) + after
        return said

    def _form(self, plural: int, n: int) -> str:
        return _clean(self._forms[plural].render(n, self._language))

    def _rule(self, rule: RbnfRule, name: str) -> _Rule:
        parts = tuple(self._part(part, name) for part in rule.parts)
        value, radix = rule.value, rule.radix
        if not isinstance(value, int) or value <= 0:
            return _Rule(0, 0, parts)
        power = log(int(f"1{str(value)[1:]}") if value >= 10 else value, radix)
        return _Rule(radix ** floor(power), radix ** ceil(power), parts)

    def _part(self, part: RbnfRulePart, name: str) -> _Part:
        if isinstance(part, SubRulePart):
            which = _QUOTIENT if part.type is SubType.QUOTIENT else _REMAINDER
            is_optional = part.is_optional or part.ruleset_name is None
            rules = part.ruleset_name or name
            before, after = _clean(part.text_before), _clean(part.text_after)
            return _Part(before, which, rules, is_optional, after)
        if isinstance(part, ReplaceRulePart):
            return _Part(rules=part.ruleset_name)
        if isinstance(part, PluralFormatPart) and part.function_name:
            self._forms.append(part)
            is_count = part.plural_type is PluralType.CARDINAL
            which = _QUOTIENT if is_count else _NUMBER
            return _Part(which=which, plural=len(self._forms) - 1)
        text = _clean(part.text) if isinstance(part, TextRulePart) else ""
        return _Part(rules=_DIGITS) if _DIGIT.search(text) else _Part(text)


def _clean(text: str) -> str:
    """Without marks of where a word may be broken, and with one sign for zero."""
    return text.replace("\u00ad", "").replace("\u200b", "").replace("〇", "零")
