"""Full stops that end no sentence: abbreviations, initials and ordinal numbers of each language.

Knows nothing of parts and pauses.
"""

from __future__ import annotations

import re
from enum import Enum


class FullStop(Enum):
    """What a full stop behind a word may be."""

    END = "the end of a sentence"
    ABBREVIATION = "a part of the word, wherever it stands"
    UNDECIDED = "the next letter tells: a small one, or a figure, goes on with the sentence"


MAX_WORD = 14  # characters of a word that may be abbreviated

# Never the last word of a sentence: titles, and what announces the next word.
_INNER = {
    "en": "mr mrs ms dr prof rev hon gen col maj capt cmdr lt sgt cpl sen rep gov pres st mt ft "
    "vs viz cf ca fig figs eq vol ed eds pp p al approx dept est ave blvd e.g i.e messrs",
    "de": "dr prof hr fr frl nr str bzw ca vgl sog z b d h u o s i a bspw evtl ggf inkl exkl zzgl "
    "abb bd kap mio mrd hrsg tel st dipl ing med phil jur geb gest verh z.b d.h u.a o.ä i.d.r i.a",
    "fr": "m mm mme mmes mlle mlles dr pr me st ste av bd env p.ex cf chap fig p pp vol art no tél",
    "es": "sr sra sres srta dr dra prof profa d dña ud uds vd vds av avda pág págs núm tel fig cap "
    "art vol p.ej ej gral lic ing arq c aprox",
    "it": "sig sigg dott prof ing avv arch geom rag sen gen col cap ten p.es es pag pagg fig art "
    "vol cfr tel ca spett egr gent san s v dr",
    "pt": "sr sra srs sras srta dr dra drs prof profa eng av pág págs núm tel fig cap art vol p.ex "
    "ex exmo exma d r ltda aprox",
    "nl": "dhr mevr mw dr drs ir ing mr prof nr bijv bv o.a d.w.z m.b.t i.p.v t.a.v ca blz tel fig "
    "st vgl z.o.z jl",
    "da": "dr hr fr nr kl bl.a f.eks ca s st prof jf pga mht mio mia red afd tlf kap fig f d dvs",
    "no": "dr hr fr nr kl bl.a f.eks ca s st prof jf pga mht mill mrd red avd tlf kap fig dvs",
    "sv": "dr hr fr nr kl bl.a t.ex ca s st prof jfr p.g.a m.a.o dvs fr.o.m t.o.m avd tel kap "
    "fig milj",
    "fi": "esim ks n s nro prof tri hra rva vrt mm klo puh ts t.s eli mrd milj",
    "pl": "dr prof inż mgr hab gen płk kpt por ul al pl os nr np tzn tj tzw m.in ok godz r w ks św "
    "tel str rys tab pt ww wg",
    "ru": "г гг в вв р ул пр просп д кв стр рис табл им т.е т.к т.н др проф акад доц инж руб коп "
    "тыс млн млрд см ср напр обл р-н тел м с п",
    "tr": "dr prof doç av sn bkz vb yy cad sok mah apt no tel örn s yrd alb gen",
    "el": "κ κκ δρ καθ αρ οδ λεωφ βλ π.χ δηλ κ.λπ τηλ σελ εκ χιλ",
    "ms": "dr prof en pn sdr yb dato no jln kg tel cth",
    "sw": "dk bw bi prof dkt mh k.m yaani na",
    "hi": "डॉ श्री प्रो पं सं रु कि मी",
    "ar": "د أ م ص",
    "he": "ד פרופ",
}
# May end one.
_FINAL = {
    "en": "a.m p.m u.s u.k u.s.a u.n e.u d.c ph.d m.d b.a m.a b.c a.d inc ltd co corp jr sr etc no "
    "bros jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun sec min hr",
    "de": "usw etc jr sen jh jhd std min sek jan feb aug sept okt nov dez mo di mi do sa so v n",
    "fr": "etc janv févr avr juil sept oct nov déc apr av.j.-c",
    "es": "etc ee.uu a.m p.m s.a a.c d.c ene feb abr jun jul ago sept oct nov dic",
    "it": "ecc etc s.p.a a.c d.c gen feb apr giu lug ago set ott nov dic",
    "pt": "etc s.a a.c d.c jan fev abr jun jul ago set out nov dez",
    "nl": "enz etc n.v b.v jan feb mrt apr jun jul aug sep sept okt nov dec min sec",
    "da": "osv mv m.v etc jan feb apr aug sep sept okt nov dec kr",
    "no": "osv mv m.v etc jan feb apr aug sep sept okt nov des kr",
    "sv": "osv m.m etc jan feb apr aug sep sept okt nov dec kr",
    "fi": "jne ym yms ja.niin.edelleen min sek v",
    "pl": "itd itp etc zł gr min sek tys mln mld",
    "ru": "т.д т.п и.т.д др мин сек ч",
    "tr": "vs vd vb",
    "el": "κτλ κ.τ.λ κ.ά π.μ μ.μ",
    "ms": "dll dsb a.m p.m",
    "sw": "n.k nk",
}
_INNER_WORDS = {code: frozenset(words.split()) for code, words in _INNER.items()}
_FINAL_WORDS = {code: frozenset(words.split()) for code, words in _FINAL.items()}
_NO_WORDS: frozenset[str] = frozenset()
_DEFAULT = "en"

# A number and a full stop is an ordinal: "3. päivä".
_ORDINAL_STOP = frozenset(("de", "da", "no", "fi", "pl", "tr"))
_MAX_ORDINAL = 3  # digits: longer ones are years
# German nouns have capital letters: the word before says whether "3. Mai" goes on.
_ANNOUNCING = (
    "am der die das dem den des im vom zum zur beim seit bis ab ein eine einen einem einer eines "
    "sein seine seinen seinem seiner ihr ihre ihren ihrem ihrer mein meine jeder jede jedes jeden "
    "und oder zwischen montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag "
    "aus nach vor ins"
)
_BEFORE_ORDINAL = frozenset(_ANNOUNCING.split())
_ROMAN = re.compile(r"[IVXLC]{2,}|[IVX]")


def full_stop(word: str, before: str, language: str | None) -> FullStop:
    """What a full stop right behind this word may be; `before` is the word in front of it."""
    code = language if language in _INNER_WORDS else _DEFAULT
    if word.isdigit() and word.isascii():
        return _behind_number(word, before, code)
    small = word.lower()
    if small in _INNER_WORDS[code]:
        return FullStop.ABBREVIATION
    if small in _FINAL_WORDS.get(code, _NO_WORDS):
        return FullStop.UNDECIDED
    letters = word.split(".")
    if all(len(letter) == 1 and letter.isalpha() for letter in letters):  # U.K., J. Smith
        is_written_so = len(letters) > 1 or word.isupper()
        return FullStop.ABBREVIATION if is_written_so else FullStop.UNDECIDED
    if code in _ORDINAL_STOP and _ROMAN.fullmatch(word):  # Ludwig XIV. von Frankreich
        return FullStop.UNDECIDED
    return FullStop.END


def _behind_number(number: str, before: str, code: str) -> FullStop:
    if code not in _ORDINAL_STOP or len(number) > _MAX_ORDINAL:
        return FullStop.END
    if code == "de" and before.lower() in _BEFORE_ORDINAL:
        return FullStop.ABBREVIATION
    return FullStop.UNDECIDED


def goes_on(character: str) -> bool:
    """Behind an undecided full stop: this, the next visible character, continues the sentence."""
    return character.islower() or character.isdigit() or character in ",;:-–—)]%&/"
