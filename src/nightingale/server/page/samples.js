// A short sentence to try a voice with, in each language of the models.

export const SAMPLES = {
  ar: "مرحبا، هكذا يبدو صوتي.", da: "Hej, sådan lyder min stemme.", de: "Hallo, so klingt meine Stimme.",
  el: "Γεια σας, έτσι ακούγεται η φωνή μου.", en: "Hello, this is how I sound.", es: "Hola, así suena mi voz.",
  fi: "Hei, tältä ääneni kuulostaa.", fr: "Bonjour, voici ma voix.", he: "שלום, כך נשמע הקול שלי.",
  hi: "नमस्ते, मेरी आवाज़ ऐसी है।", it: "Ciao, questa è la mia voce.", ja: "こんにちは、これが私の声です。",
  ko: "안녕하세요, 제 목소리입니다.", ms: "Helo, inilah suara saya.", nl: "Hallo, zo klinkt mijn stem.",
  no: "Hei, slik høres stemmen min ut.", pl: "Cześć, tak brzmi mój głos.", pt: "Olá, esta é a minha voz.",
  ru: "Здравствуйте, так звучит мой голос.", sv: "Hej, så här låter min röst.", sw: "Habari, hii ndiyo sauti yangu.",
  tr: "Merhaba, sesim böyle.", zh: "你好，这就是我的声音。",
};
