# ruff: noqa: E501, SIM905
"""Makes src/nightingale/text/normalization/table.json from CLDR, as Babel and ICU carry it.

    pip install babel pyicu-wheels && python scripts/normalization_table.py

Units with their plural patterns and noun class, names of currencies, months, decimal marks. What CLDR
does not have is written by hand in `text/normalization/languages.py`.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "src/nightingale/text/normalization/table.json"
MAX_BYTES = 150_000
LANGUAGES = "ar da de el en es fi fr he hi it ja ko ms nl no pl pt ru sv sw tr zh".split()
LOCALES = {"no": "nb"}
CURRENCIES = (
    "USD EUR GBP JPY CNY INR BRL KRW RUB PLN SEK NOK DKK TRY CHF MYR ILS KES SAR AED MXN CAD AUD"
).split()
# fmt: off
UNITS = {
    "kg": "mass-kilogram", "g": "mass-gram", "mg": "mass-milligram", "lb": "mass-pound",
    "oz": "mass-ounce", "km": "length-kilometer", "m": "length-meter", "cm": "length-centimeter",
    "mm": "length-millimeter", "mi": "length-mile", "ft": "length-foot", "l": "volume-liter",
    "ml": "volume-milliliter", "km/h": "speed-kilometer-per-hour", "mph": "speed-mile-per-hour",
    "m/s": "speed-meter-per-second", "°C": "temperature-celsius", "°F": "temperature-fahrenheit",
    "h": "duration-hour", "min": "duration-minute", "s": "duration-second",
    "ms": "duration-millisecond", "%": "concentr-percent", "kB": "digital-kilobyte",
    "MB": "digital-megabyte", "GB": "digital-gigabyte", "TB": "digital-terabyte",
    "W": "power-watt", "kW": "power-kilowatt", "kWh": "energy-kilowatt-hour",
    "V": "electric-volt", "Hz": "frequency-hertz", "kHz": "frequency-kilohertz",
    "MHz": "frequency-megahertz", "GHz": "frequency-gigahertz", "m²": "area-square-meter",
    "km²": "area-square-kilometer", "m³": "volume-cubic-meter", "ha": "area-hectare",
    "kcal": "energy-kilocalorie",
}
# fmt: on
PLURALS = ("zero", "one", "two", "few", "many", "other")
# ICU's UDisplayOptionsNounClass
GENDERS = {2: "neuter", 3: "feminine", 4: "masculine", 5: "masculine", 6: "masculine", 8: "common"}


def entry(language: str, babel: Any, icu: Any) -> dict[str, Any]:
    locale = babel.Locale.parse(LOCALES.get(language, language))
    patterns = locale._data["unit_patterns"]
    names = locale._data["currency_names_plural"]
    money = {
        c: dict(names.get(c, {})) or {"other": locale.currencies.get(c, c)} for c in CURRENCIES
    }
    symbols = locale.number_symbols.get("latn") or locale.number_symbols
    return {
        "units": {
            sign: _unit(patterns.get(unit, {}).get("long", {}), _gender(language, unit, icu))
            for sign, unit in UNITS.items()
        },
        "money": {code: _merged(forms) for code, forms in money.items()},
        "decimal": symbols["decimal"],
        "group": symbols["group"],
        "months": list(locale.months["format"]["wide"].values()),
    }


def _unit(patterns: dict[str, str], gender: str | None) -> dict[str, str]:
    kept = {name: patterns[name] for name in PLURALS if name in patterns}
    return {**_merged(kept), **({"gender": gender} if gender else {})}


def _merged(forms: dict[str, str]) -> dict[str, str]:
    """Forms that differ from the general one."""
    plain = {name: _plain(form) for name, form in forms.items()}
    return {n: f for n, f in plain.items() if n == "other" or f != plain.get("other")}


def _plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ").replace("\u200f", "")


def _gender(language: str, unit: str, icu: Any) -> str | None:
    measure = icu.MeasureUnit.forIdentifier(unit.split("-", 1)[1])
    formatter = icu.NumberFormatter.withLocale(icu.Locale(language))
    formatter = formatter.unitWidth(icu.UNumberUnitWidth.FULL_NAME).unit(measure)
    return GENDERS.get(int(formatter.formatIntToValue(1).getNounClass()))


def main() -> None:
    babel, icu = importlib.import_module("babel"), importlib.import_module("icu")
    table = {language: entry(language, babel, icu) for language in LANGUAGES}
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    size = len(text.encode())
    assert size <= MAX_BYTES, size
    FILE.write_text(text + "\n", encoding="utf-8")
    print(f"{FILE}: {size} bytes")


if __name__ == "__main__":
    main()
