"""What is said in each language and CLDR does not say: written by hand, no native speaker checked it.

Tables by language code; where a language is missing, the general form holds.
"""

from __future__ import annotations

# ruff: noqa: E501, SIM905
# fmt: off
_CODES = "ar da de el en es fi fr he hi it ja ko ms nl no pl pt ru sv sw tr zh".split()


def _row(words: str) -> dict[str, str]:
    return dict(zip(_CODES, words.split("|"), strict=True))


POINT = _row("فاصلة|komma|Komma|κόμμα|point|coma|pilkku|virgule|נקודה|दशमलव|virgola|点|점|perpuluhan|komma|komma|przecinek|vírgula|запятая|komma|nukta|virgül|点")
MINUS = _row("ناقص|minus|minus|μείον|minus|menos|miinus|moins|מינוס|माइनस|meno|マイナス|마이너스|tolak|min|minus|minus|menos|минус|minus|kasoro|eksi|负")
PLUS = _row("زائد|plus|plus|συν|plus|más|plus|plus|פלוס|प्लस|più|プラス|플러스|tambah|plus|pluss|plus|mais|плюс|plus|jumlisha|artı|加")
TO = _row("إلى|til|bis|έως|to|a|–|à|עד|से|a|から|에서|hingga|tot|til|do|a|до|till|hadi|ile|到")
AND = _row("و|og|und|και|and|y|ja|et|ו|और|e|と|그리고|dan|en|og|i|e|и|och|na|ve|和")
DOT = _row("نقطة|punktum|Punkt|τελεία|dot|punto|piste|point|נקודה|डॉट|punto|ドット|점|titik|punt|punktum|kropka|ponto|точка|punkt|nukta|nokta|点")
AT = _row("آت|snabel-a|at|παπάκι|at|arroba|ät|arobase|שטרודל|ऐट|chiocciola|アット|골뱅이|di|at|krøllalfa|małpa|arroba|собака|snabel-a|at|et|艾特")
SLASH = _row("شرطة مائلة|skråstreg|Schrägstrich|κάθετος|slash|barra|kauttaviiva|barre oblique|לוכסן|स्लैश|barra|スラッシュ|슬래시|garis miring|slash|skråstrek|ukośnik|barra|косая черта|snedstreck|mkwaju|bölü|斜杠")
HYPHEN = _row("شرطة|bindestreg|Bindestrich|παύλα|dash|guion|viiva|tiret|מקף|डैश|trattino|ハイフン|하이픈|sempang|streepje|bindestrek|myślnik|hífen|дефис|bindestreck|kistari|tire|横杠")
UNDERSCORE = _row("شرطة سفلية|understreg|Unterstrich|κάτω παύλα|underscore|guion bajo|alaviiva|tiret bas|קו תחתון|अंडरस्कोर|trattino basso|アンダーバー|밑줄|garis bawah|underscore|understrek|podkreślnik|sublinhado|подчёркивание|understreck|mstari chini|alt çizgi|下划线")
HALF = _row("نصف|en halv|ein halb|μισό|one half|un medio|puoli|un demi|חצי|आधा|un mezzo|二分の一|이분의 일|setengah|een half|en halv|pół|um meio|одна вторая|en halv|nusu|yarım|二分之一")
QUARTER = _row("ربع|en kvart|ein Viertel|ένα τέταρτο|one quarter|un cuarto|neljännes|un quart|רבע|एक चौथाई|un quarto|四分の一|사분의 일|suku|een kwart|en kvart|jedna czwarta|um quarto|одна четвёртая|en fjärdedel|robo|çeyrek|四分之一")
QUARTERS = _row("ثلاثة أرباع|tre kvart|drei Viertel|τρία τέταρτα|three quarters|tres cuartos|kolme neljännestä|trois quarts|שלושה רבעים|तीन चौथाई|tre quarti|四分の三|사분의 삼|tiga suku|driekwart|tre kvart|trzy czwarte|três quartos|три четвёртых|tre fjärdedelar|robo tatu|dörtte üç|四分之三")
NUMBER_SIGN = _row("رقم|nummer|Nummer|αριθμός|number|número|numero|numéro|מספר|नंबर|numero|ナンバー|넘버|nombor|nummer|nummer|numer|número|номер|nummer|nambari|numara|号")

# {h}, {m}: plain; {hf}: feminine; {hn}: native Korean. Second form: full hours.
CLOCK = {
    "ar": ("الساعة {hf} و{mf} دقيقة", "الساعة {hf}"), "da": ("{h} {m}", "{h}"),
    "de": ("{hu} Uhr {m}", "{hu} Uhr"), "el": ("{hf} και {m}", "{hf}"), "en": ("{h} {m0}", "{h} o'clock"),
    "es": ("{hf} y {m}", "{hf} en punto"), "fi": ("{h} {m0}", "{h}"), "fr": ("{hf} {heure} {m}", "{hf} {heure}"),
    "he": ("{hf} ו{m}", "{hf}"), "hi": ("{h} बजकर {m} मिनट", "{h} बजे"), "it": ("{h} e {m}", "{h}"),
    "ja": ("{h}時{m}分", "{h}時"), "ko": ("{hn} 시 {m} 분", "{hn} 시"), "ms": ("{h} {m}", "{h}"),
    "nl": ("{h} uur {m}", "{h} uur"), "no": ("{h} {m0}", "{h}"), "pl": ("{h} {m0}", "{h}"),
    "pt": ("{hf} e {m}", "{hf} {hora}"), "ru": ("{h} {m0}", "{h} ноль-ноль"), "sv": ("{h} {m0}", "{h}"),
    "sw": ("{h} na dakika {m}", "{h}"), "tr": ("{h} {m}", "{h}"), "zh": ("{h}点{m}分", "{h}点"),
}
# Behind a clock time, and said by it already.
CLOCK_SUFFIX = {"de": "Uhr", "nl": "uur", "fr": "h|heures?", "zh": "点|點", "hi": "बजे"}

# Day and month name as they are said; None: as any number. The names are the form of CLDR's dates.
DAY = {"en": "ordinal", "de": "ordinal", "da": "ordinal", "no": "ordinal", "sv": "ordinal", "fi": "ordinal",
       "ru": "genitive", "pl": "genitive", "el": "feminine"}
DATE = {"en": "{month} {day}, {year}", "es": "{day} de {month} de {year}", "pt": "{day} de {month} de {year}",
        "ja": "{year}年{m}月{d}日", "zh": "{year}年{m}月{d}日", "ko": "{year}년 {month} {d}일",
        "pl": "{day} {month} {year} roku", "ru": "{day} {month} {year} года", "hi": "{day} {month} {year}"}
DATE_ORDER = {"en": "mdy", "ja": "ymd", "ko": "ymd", "zh": "ymd"}  # of 3/4/2024; else dmy

# The short name of the home currency, and what is written for it.
SHORT_MONEY = {
    "en": {"USD": ("dollar", "dollars"), "GBP": ("pound", "pounds")},
    "es": {"USD": ("dólar", "dólares"), "MXN": ("peso", "pesos")}, "fr": {"USD": ("dollar", "dollars")},
    "de": {"USD": ("Dollar", "Dollar"), "GBP": ("Pfund", "Pfund"), "CHF": ("Franken", "Franken")},
    "pt": {"BRL": ("real", "reais"), "USD": ("dólar", "dólares")}, "it": {"USD": ("dollaro", "dollari")},
    "nl": {"USD": ("dollar", "dollar")}, "sv": {"SEK": ("krona", "kronor"), "USD": ("dollar", "dollar")},
    "da": {"DKK": ("krone", "kroner"), "USD": ("dollar", "dollar")},
    "no": {"NOK": ("krone", "kroner"), "USD": ("dollar", "dollar")}, "tr": {"TRY": ("lira", "lira"), "USD": ("dolar", "dolar")},
    "ms": {"MYR": ("ringgit", "ringgit")}, "sw": {"USD": ("dola", "dola")}, "zh": {"CNY": ("元", "元")},
}
HUNDREDTH = {  # of a currency, one and many, where it is said
    "en": {"USD": ("cent", "cents"), "EUR": ("cent", "cents"), "GBP": ("penny", "pence")},
}
WHOLE_THEN_HUNDREDTHS = frozenset(("da", "de", "el", "en", "es", "fi", "fr", "it", "nl", "no", "pl", "pt", "sv", "tr", "ru", "ms"))
MONEY_AND = {"es": " con ", "it": " e ", "pt": " e ", "el": " και ", "en": " and "}
HOME_CROWN = {"sv": "SEK", "no": "NOK", "da": "DKK"}
MAGNITUDES = {
    "en": {"thousand": "thousand", "million": "million", "billion": "billion", "trillion": "trillion", "m": "million", "bn": "billion", "k": "thousand"},
    "de": {"Mio.": "Millionen", "Mrd.": "Milliarden", "Millionen": "Millionen", "Milliarden": "Milliarden", "Tausend": "tausend"},
    "fr": {"millions": "millions", "million": "million", "milliards": "milliards", "milliard": "milliard", "M": "millions", "Md": "milliards"},
    "es": {"millones": "millones", "millón": "millón"}, "it": {"milioni": "milioni", "miliardi": "miliardi"},
    "pt": {"milhões": "milhões", "bilhões": "bilhões"}, "nl": {"miljoen": "miljoen", "miljard": "miljard"},
}
MONEY_OF = {"fr": "de ", "es": "de ", "it": "di ", "pt": "de "}  # "deux millions d'euros"

ORDINAL = {  # what marks one, behind (or before) the figures
    "ar": None, "he": None, "en": r"(\d+)(?:st|nd|rd|th)\b", "es": r"(\d+)\.?[ºª°]", "it": r"(\d+)[ºª°]",
    "pt": r"(\d+)\.?[ºª°]", "fr": r"(\d+)(?:ers?|res?|èmes?|es?|ᵉ|nde?)\b", "nl": r"(\d+)(?:ste|de|e)\b",
    "sv": r"(\d+):[ae]\b", "ru": r"(\d+)-(?:й|я|е|го|му|м|ый|ой|ая|ое)\b", "el": r"(\d+)(?:ος|ης|ου|[οηος])\b",
    "ja": r"第(\d+)(?!\d)", "zh": r"第(\d+)(?!\d)", "ko": r"(\d+)\s?번째", "ms": r"\bke-(\d+)",
    "sw": r"\bwa (\d+)\b", "hi": r"(\d+)(?:ला|रा|री|था|थी|वां|वाँ|वीं)",
    **dict.fromkeys(("de", "da", "no", "fi", "tr", "pl"), r"(\d{1,3})\.(?=\s+[^\W\d_])"),
}
FEMININE_ORDINAL = {"es": "ª", "it": "ª", "pt": "ª", "fr": "re", "ru": "я", "el": "η", "hi": "ी"}
ORDINAL_PREFIX = {"sw": "wa "}
DE_WEAK = frozenset("am vom zum im dem den beim".split())  # "am dritten"
PL_ORDINALS = (  # masculine, to 31; genitive by ending
    "pierwszy drugi trzeci czwarty piąty szósty siódmy ósmy dziewiąty dziesiąty jedenasty dwunasty "
    "trzynasty czternasty piętnasty szesnasty siedemnasty osiemnasty dziewiętnasty dwudziesty").split()

CARDINAL = {"ar": "cardinal-masculine", "ko": "cardinal-sinokorean", "da": "numbering", "el": "cardinal-neuter"}
ORDINAL_RULES = {"da": "ordinal-common", "ko": "ordinal-native-count",
                 **dict.fromkeys("ar el es fr he hi it no pt ru sv".split(), "ordinal-masculine")}
FEMININE_MONEY = {"es": ("GBP", "SEK", "NOK", "DKK", "TRY"), "it": ("GBP", "SEK", "NOK", "DKK", "TRY"), "pt": ("GBP", "SEK", "NOK", "DKK", "TRY"),
                  "fr": ("GBP", "SEK", "NOK", "DKK", "TRY", "INR"), "pl": ("SEK", "NOK", "DKK", "TRY", "INR"), "ru": ("SEK", "NOK", "DKK", "TRY", "INR")}
# Rulers and popes are counted in ordinals; {o}: the ordinal. Where the list is silent: a plain number.
RULERS = {"en": "the {o}", "de": "der {o}", "es": "{o}", "it": "{o}", "pt": "{o}", "nl": "de {o}"}
RULER_NAMES = frozenset(
    "henry louis elizabeth charles george edward william james philip frederick richard john paul benedict pius "
    "leo francis nicholas catherine peter napoleon heinrich ludwig friedrich wilhelm karl otto philipp johannes "
    "benedikt franz felipe carlos alfonso fernando luis juan enrico vittorio umberto carlo pio leone pedro joão "
    "willem filips hendrik elisabeth katharina ivan alexander alfred christian gustav oscar haakon margrethe".split())
# All-caps words without a vowel that are said as words, or are words of another kind.
NOT_SPELLED = frozenset("HM HMM SH SHH PST PSST MR MRS DR ST NR VS BRR GRR TSK".split())
SYMBOLS = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "￥": "JPY", "₹": "INR", "R$": "BRL", "₩": "KRW",
           "₽": "RUB", "zł": "PLN", "₺": "TRY", "₪": "ILS", "RM": "MYR", "kr": "", "元": "CNY", "円": "JPY", "원": "KRW",
           "руб.": "RUB", "Fr.": "CHF", "TL": "TRY",
           **{code: code for code in "USD EUR GBP JPY CNY INR BRL KRW RUB PLN SEK NOK DKK TRY CHF MYR ILS KES SAR AED MXN CAD AUD".split()}}
UNIT_ALIASES = {
    "ru": {"кг": "kg", "г": "g", "км": "km", "м": "m", "см": "cm", "мм": "mm", "л": "l", "мл": "ml", "км/ч": "km/h", "мин": "min", "ГБ": "GB", "МБ": "MB", "кВт": "kW"},
    "he": {'ק"ג': "kg", 'ק"מ': "km"}, "ar": {"كغ": "kg", "كجم": "kg", "كم": "km", "سم": "cm"}, "hi": {"किग्रा": "kg", "किमी": "km"},
    "el": {"χλμ": "km", "κιλά": "kg"}, "en": {"L": "l", "hrs": "h", "lbs": "lb", "mins": "min", "sec": "s"},
    "de": {"Std.": "h", "Min.": "min", "L": "l"}, "ja": {"キロ": "km"}, "zh": {"公斤": "kg", "公里": "km", "米": "m"},
}
ABBREVIATIONS = {  # said in full, wherever they stand; those of titles and "for example"
    "en": {"Dr.": "Doctor", "Mr.": "Mister", "Mrs.": "Missus", "Prof.": "Professor", "e.g.": "for example", "i.e.": "that is", "etc.": "et cetera", "vs.": "versus", "approx.": "approximately", "a.m.": "a m", "p.m.": "p m", "Jr.": "Junior"},
    "de": {"Dr.": "Doktor", "Prof.": "Professor", "z. B.": "zum Beispiel", "z.B.": "zum Beispiel", "d. h.": "das heißt", "d.h.": "das heißt", "u. a.": "unter anderem", "u.a.": "unter anderem", "usw.": "und so weiter", "bzw.": "beziehungsweise", "ca.": "circa", "Mio.": "Millionen", "Mrd.": "Milliarden", "Nr.": "Nummer", "evtl.": "eventuell", "ggf.": "gegebenenfalls", "vgl.": "vergleiche", "inkl.": "inklusive", "Hr.": "Herr", "bspw.": "beispielsweise", "etc.": "et cetera"},
    "fr": {"M.": "Monsieur", "Mme": "Madame", "Mlle": "Mademoiselle", "Dr": "Docteur", "p. ex.": "par exemple", "etc.": "et cetera", "n°": "numéro"},
    "es": {"Sr.": "señor", "Sra.": "señora", "Dr.": "doctor", "Dra.": "doctora", "p. ej.": "por ejemplo", "etc.": "etcétera", "Ud.": "usted", "n.º": "número", "pág.": "página"},
    "it": {"Sig.": "signor", "sig.": "signor", "Dott.": "dottor", "dott.": "dottor", "ecc.": "eccetera", "p. es.": "per esempio", "pag.": "pagina"},
    "pt": {"Sr.": "senhor", "Sra.": "senhora", "Dr.": "doutor", "Dra.": "doutora", "p. ex.": "por exemplo", "etc.": "et cetera", "pág.": "página"},
    "nl": {"dhr.": "de heer", "mevr.": "mevrouw", "bijv.": "bijvoorbeeld", "d.w.z.": "dat wil zeggen", "enz.": "enzovoort", "ca.": "circa", "nr.": "nummer", "o.a.": "onder andere", "dr.": "dokter"},
    "da": {"bl.a.": "blandt andet", "f.eks.": "for eksempel", "ca.": "cirka", "osv.": "og så videre", "kl.": "klokken", "nr.": "nummer", "dvs.": "det vil sige", "Dr.": "Doktor"},
    "no": {"bl.a.": "blant annet", "f.eks.": "for eksempel", "ca.": "cirka", "osv.": "og så videre", "kl.": "klokken", "nr.": "nummer", "dvs.": "det vil si", "Dr.": "Doktor"},
    "sv": {"bl.a.": "bland annat", "t.ex.": "till exempel", "ca.": "cirka", "osv.": "och så vidare", "kl.": "klockan", "nr.": "nummer", "dvs.": "det vill säga", "Dr.": "Doktor"},
    "fi": {"esim.": "esimerkiksi", "jne.": "ja niin edelleen", "ym.": "ynnä muuta", "klo": "kello", "nro": "numero", "ks.": "katso"},
    "pl": {"np.": "na przykład", "itd.": "i tak dalej", "itp.": "i tym podobne", "tj.": "to jest", "ul.": "ulica", "prof.": "profesor", "dr": "doktor", "nr": "numer", "m.in.": "między innymi"},
    "ru": {"т.е.": "то есть", "т. е.": "то есть", "и т.д.": "и так далее", "и т. д.": "и так далее", "т.к.": "так как", "ул.": "улица", "напр.": "например", "др.": "другие"},
    "tr": {"Dr.": "Doktor", "Prof.": "Profesör", "vb.": "ve benzeri", "vs.": "vesaire", "örn.": "örneğin"},
    "el": {"π.χ.": "παραδείγματος χάριν", "κ.λπ.": "και λοιπά", "δηλ.": "δηλαδή", "Δρ.": "Δόκτωρ"},
    "ms": {"Dr.": "Doktor", "dll.": "dan lain-lain", "dsb.": "dan sebagainya"}, "sw": {"Dk.": "Daktari", "n.k.": "na kadhalika"},
    "hi": {"डॉ.": "डॉक्टर", "प्रो.": "प्रोफ़ेसर"}, "ar": {"د.": "دكتور"}, "he": {'ד"ר': "דוקטור"},
    "ja": {}, "ko": {}, "zh": {},
}
PERCENT = {"ar": "{0} بالمائة", "ja": "{0}パーセント", "ko": "{0} 퍼센트", "sw": "asilimia {0}", "zh": "百分之{0}"}  # where CLDR has the sign
TIGHT = frozenset(("ja", "zh"))  # words are not set apart
SPACE_GROUPS = frozenset(("fi", "fr", "no", "pl", "ru", "sv", "da"))  # 1 234
