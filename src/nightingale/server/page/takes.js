// What was said, to be heard again: a player with seek for each take, its file, and its settings once more.

const MOST = 10;
const urls = new WeakMap();
const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

export function keep({ text, options, player }, again) {
  const list = document.getElementById("takes"), seconds = player.seconds.toFixed(1);
  const href = URL.createObjectURL(player.wav()), short = text.slice(0, 60);
  const audio = element("audio", { src: href, controls: true, preload: "metadata" });
  audio.setAttribute("aria-label", `Take: ${short}`);
  const repeat = element("button", { type: "button", textContent: "Edit again", onclick: () => again(text, options) });
  const file = element("a", { href, download: "nightingale.wav", textContent: "Download" });
  repeat.setAttribute("aria-label", `Edit again: ${short}`);
  file.setAttribute("aria-label", `Download: ${short}`);
  const speed = options.speed && `speed ${options.speed}`;
  const facts = [options.voice, options.language, `seed ${options.seed}`, speed, `${seconds} s`].filter(Boolean).join(", ");
  const row = element("div", { className: "row" }, element("span", { textContent: facts }), repeat, file);
  const item = element("li", {}, element("p", { textContent: text }), audio, row);
  urls.set(item, href);
  list.prepend(item);
  while (list.children.length > MOST) {
    URL.revokeObjectURL(urls.get(list.lastChild));
    list.lastChild.remove();
  }
  document.getElementById("history").hidden = false;
}
