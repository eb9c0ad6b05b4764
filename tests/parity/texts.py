"""What the text parity reads: sentences in 23 languages, decorations for them, and nasty ones."""

from __future__ import annotations

SENTENCES = {
    "ar": """
مرحبا، كيف حالك اليوم؟
القطار يغادر المحطة في الساعة التاسعة صباحًا.
أحب قراءة الكتب القديمة في المساء
هل يمكنك أن تفتح النافذة من فضلك؟
العربيّة لغةٌ جميلةٌ وغنيّة.
وصلت الرسالة أمس ولم أجب عليها بعد!
عنده ٢٥ كتابًا و ٣ أقلام.
""",
    "da": """
Hej, hvordan går det i dag?
Toget kører fra København klokken ni.
Øen ligger langt ude i Østersøen
Æblerne er røde, og pærerne er grønne.
Kan du række mig saltet?
Vi så en gammel film i går aftes!
Å i ådalen løber ud i åen.
""",
    "de": """
Guten Morgen, wie geht es Ihnen?
Der Zug fährt um Viertel nach neun ab.
Die Straße ist groß und führt über die Brücke
Ärgerlich: Öl und Überreste liegen überall!
Haben Sie Ihren Schlüssel gefunden?
Im Jahr 1989 fiel die Mauer.
Schöne Grüße aus München; bis bald.
""",
    "el": """
Καλημέρα, τι κάνεις σήμερα;
Το τρένο φεύγει στις εννιά το πρωί.
Η θάλασσα είναι ήρεμη απόψε
Πού είναι ο σταθμός του μετρό;
Μου αρέσει να διαβάζω παλιά βιβλία.
Έξω βρέχει και φυσάει πολύ!
Ο Οδυσσεύς γύρισε στην Ιθάκη.
""",
    "en": """
The billing issue is resolved.
she sells sea shells by the sea shore
Don't you think it's time we went home?
In 1984, 25% of the people (about 1,200) left.
"Stop!" he cried; nobody listened.
Well... I suppose - if you must - you may.
Dr. Smith paid $3.50 for a café au lait.
""",
    "es": """
¿Cómo estás hoy? ¡Muy bien!
El tren sale a las nueve de la mañana.
el niño pequeño comió una piña
La pingüina nadó hacia el ñandú.
Mañana iremos al mercado: compraremos pan.
No sé qué decir… déjame pensarlo
Aquí tienes «la llave» de la casa.
""",
    "fi": """
Hyvää huomenta, mitä kuuluu?
Juna lähtee asemalta kello yhdeksän.
Äiti söi jäätelöä hämärässä metsässä
Voisitko avata ikkunan, kiitos?
Yöllä satoi lunta koko kaupunkiin!
Åke asuu Turussa vanhassa talossa.
Tämä kirja maksoi 19,90 euroa.
""",
    "fr": """
Bonjour, comment allez-vous aujourd'hui ?
Le train part à neuf heures du matin.
l’été dernier, nous étions à la forêt
Où est passé le garçon ? Là-bas !
Elle a reçu une lettre de son père naïf.
Ça coûte 12,50 € : c'est trop cher ;
« Hélas », dit-il — puis il se tut…
""",
    "he": """
שלום, מה שלומך היום?
הרכבת יוצאת מהתחנה בשעה תשע בבוקר.
אני אוהב לקרוא ספרים ישנים בערב
איפה תחנת האוטובוס הקרובה?
שָׁלוֹם לְכֻלָּם.
אתמול ירד גשם כל הלילה!
ד"ר כהן גר ברח' הרצל 12.
""",
    "hi": """
नमस्ते, आप आज कैसे हैं?
रेलगाड़ी सुबह नौ बजे छूटती है।
मुझे पुरानी किताबें पढ़ना अच्छा लगता है
क्या आप खिड़की खोल सकते हैं?
कल रात बहुत तेज़ बारिश हुई!
उसके पास २५ क़लम और ३ फ़ोटो हैं।
दिल्ली भारत की राजधानी है.
""",
    "it": """
Buongiorno, come sta oggi?
Il treno parte alle nove del mattino.
perché non vieni anche tu al mare
La città è più bella di così, però è cara.
Dov'è l'università? È là.
Ieri ho mangiato una pizza buonissima!
Costa 3,50 euro: va bene...
""",
    "ja": """
今日は良い天気ですね。
東京駅から電車で行きます
私は学生です。彼女は歯が痛いと言いました。
ガギグゲゴ、パピプペポ。
コーヒーを一杯ください！
部屋の中に本が３冊あります
明日、母へ手紙を書く。
2024年4月1日に、AIの会議がある？
""",
    "ko": """
안녕하세요, 오늘 기분이 어때요?
기차는 아침 아홉 시에 출발합니다.
저는 오래된 책을 읽는 것을 좋아해요
창문을 열어 주시겠어요?
어젯밤에 비가 많이 왔어요!
값이 25,000원입니다.
닭고기와 읽기, 앉다와 없다.
""",
    "ms": """
Selamat pagi, apa khabar hari ini?
Kereta api bertolak pada pukul sembilan pagi.
saya suka membaca buku lama pada waktu malam
Bolehkah anda buka tingkap itu?
Semalam hujan turun dengan lebat!
Harganya RM12.50 sahaja.
Kanak-kanak bermain di tepi pantai.
""",
    "nl": """
Goedemorgen, hoe gaat het met u?
De trein vertrekt om negen uur 's ochtends.
ĳsberen eten geen ijs in Zoëterwoude
Kunt u het raam openen, alstublieft?
Het heeft de hele nacht geregend!
Eén van de coördinatoren is geïnteresseerd.
Dat kost 12,50 euro; te duur.
""",
    "no": """
God morgen, hvordan har du det?
Toget går fra Bodø klokken ni.
øya ligger langt ute i havet
Kan du åpne vinduet, er du snill?
Det regnet hele natten i går!
Ærlig talt: jeg vet ikke.
Blåbær og tyttebær koster 25 kroner.
""",
    "pl": """
Dzień dobry, jak się pan miewa?
Pociąg odjeżdża o dziewiątej rano.
łódź płynie po żółtej rzece
Chrząszcz brzmi w trzcinie w Szczebrzeszynie.
Czy możesz otworzyć okno?
Wczoraj całą noc padał śnieg!
To kosztuje 12,50 zł; za drogo.
""",
    "pt": """
Bom dia, como você está hoje?
O trem parte às nove horas da manhã.
não sei onde está o avô da Conceição
Pode abrir a janela, por favor?
Ontem à noite choveu muito!
Três ações custam R$ 12,50.
A maçã e o pão são da minha irmã.
""",
    "ru": """
Доброе утро, как ваши дела?
Поезд отходит в девять часов утра.
ёлка стоит в углу, а под ней лежит ёж
Не могли бы вы открыть окно?
Вчера всю ночь шёл сильный дождь!
Мой йогурт стоит 25 рублей.
«Сто лет», — сказал он…
""",
    "sv": """
God morgon, hur mår du i dag?
Tåget avgår klockan nio på morgonen.
älgen åt äpplen på ön
Kan du öppna fönstret, tack?
Det regnade hela natten igår!
Åtta öringar kostar 120 kronor.
Vi ses väl i Malmö; hälsa alla.
""",
    "sw": """
Habari za asubuhi, hujambo?
Treni inaondoka saa tatu asubuhi.
ninapenda kusoma vitabu vya zamani usiku
Tafadhali fungua dirisha?
Jana usiku mvua ilinyesha sana!
Ng'ombe wangu ana ndama wawili.
Bei ni shilingi 2,500 tu.
""",
    "tr": """
Günaydın, bugün nasılsınız?
Tren sabah saat dokuzda kalkıyor.
ırmak kıyısında İstanbul'u düşündüm
Pencereyi açabilir misiniz?
Dün gece çok yağmur yağdı!
ÇĞİÖŞÜ harfleri önemlidir.
Fiyatı 12,50 lira: çok pahalı.
""",
    "zh": """
今天天气很好，我们去公园散步吧！
他在北京大学学习中文。
请问火车站在哪里？
我喜欢喝茶，不喜欢喝咖啡
中国人民银行发布了新的报告。
這是一個很大的城市：人、山、水、火、木、金、土
日曰干于士明林
2024年4月1日，AI会议在上海。
""",
}

DECORATIONS = [
    "{}",
    "  {}\n\n{}  ",
    "“{}” — 12:30… ‘ok’ – {}",
    "{} 😀👩‍👩‍👧 [laughter] {}",
]

NASTY = [
    "a",
    " a",
    "É",
    "e\u0301\u0323\u0308",
    "ß",
    "İıIi",
    "ﬁne ﬂow ½ ² Å ㎏ ﷺ",
    "1,234,567.89 + 3/4 = ??",
    "wait....... what",
    "... … . . .",
    " - - -",
    "—",
    ":;:;",
    "\"'`´“”‘’„«»",
    "ＡＢＣ　１２３：；！",
    "好，好。好？好！",
    "好、",
    "¨가",
    "한국 ｶﾞｷﾞ ガギ がぎ 漢字かな交じり文",
    "歯へ葉は部屋",
    "abc שלום עולם def مرحبا",
    "\u200fעברית\u200e \u202babc\u202c",
    "zero\u200bwidth\u200djoin\ufeff",
    "tab\tand\nnew\r\nline\u2028end\u3000x",
    "[laughter] [LAUGHTER] [laugh] [sigh][gasp] [cough]x",
    "[START] [STOP] [UNK] [SPACE] [en] [zh] [cj_a] [PAD]",
    "a [ sigh ] b [clear throat] c <|endoftext|> d",
    "A  [laugh]  b [sigh] c [gasp]  d",
    "emoji 👍🏽 🇩🇪 ❤️ ☃",
    "𝕳𝖊𝖑𝖑𝖔 𠮷野家 𐍈",
    "\U0001f600\u0301\ue000\uffff\x00\x07",
    "x" * 300,
    "the quick brown fox, " * 40,
    "今天天气很好" * 30,
]


def by_language() -> list[tuple[str | None, str]]:
    """(language, text) for every language: sentences times decorations, then the nasty ones."""
    pairs: list[tuple[str | None, str]] = []
    for language, table in SENTENCES.items():
        sentences = table.strip().split("\n")
        pairs += [(language, d.format(s, s)) for s in sentences for d in DECORATIONS]
        pairs += [(language, text) for text in NASTY]
    return pairs + [(None, text) for _, text in pairs[::7]]


def mixed() -> list[str]:
    """For the models that speak English only: everything English, and some of all the others."""
    pairs = by_language()
    return [text for language, text in pairs if language == "en"] + [t for _, t in pairs[::5]]
