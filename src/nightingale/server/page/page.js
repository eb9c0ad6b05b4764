// Type, hear it stream, see it grow. No libraries, nothing from elsewhere.

import { Mel } from "/page/mel.js";
import { Player } from "/page/play.js";
import { SAMPLES } from "/page/samples.js";
import { keep } from "/page/takes.js";

const RATE = 24000;
const TAGS = /\[(?:pause(?::[^\[\]\n]*)?|voice:[^\[\]\n]*|\/voice)\](?!\()|<\/?(?:speak|break|voice|lang|sub|spell|say-as|prosody|emphasis|p|s)\b[^<>]*>/gi;
const $ = (id) => document.getElementById(id);
const say = (text) => { $("message").textContent = text; };
const show = (state) => { document.body.dataset.state = state; };

let context = null, talk = null, last = null, clip = null;

class Talk {
  constructor(text, options, clicked) {
    this.text = text;
    this.options = options;
    this.player = new Player(context, clicked);
    this.loudest = 0;
    this.words = [];
    this.mel = new Mel();
    this.columns = [];
    this.spans = text.replace(TAGS, " ").split(/\s+/).filter(Boolean).map((word) => Object.assign(document.createElement("span"), { textContent: word + " " }));
    $("said").replaceChildren(...this.spans);
    ["first", "rtf", "seconds", "ahead", "gaps"].forEach((id) => { $(id).textContent = "–"; });
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/v1/audio/speech/stream`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.send({ type: "start", progress: true, ...options });
      this.send({ type: "text", text });
      this.send({ type: "end" });
    };
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.hear(JSON.parse(data)) : this.play(new Int16Array(data)));
    this.socket.onclose = () => this.end();
    this.socket.onerror = () => say("The server does not answer.");
  }

  send(message) { this.socket.send(JSON.stringify(message)); }

  hear(message) {
    if (message.type === "words") this.words.push(...message.words.map((word) => this.placed(word)));
    else if (message.type === "buffering") {
      show("buffering");
      $("seconds").textContent = `${message.seconds.toFixed(1)} s`;
      say("Buffering, so that it does not stop while it plays …");
    } else if (message.type === "error") { say(message.error.message); this.socket.close(); }
    else if (message.type === "done") {
      this.isDone = true;
      this.report(message);
      this.socket.close();
    } else if (message.type === "cancelled") {
      say(message.last_word ? `Stopped at “${message.last_word.word}”.` : "Stopped.");
      this.socket.close();
    }
  }

  // Words that the model cannot read are not reported: here they go with the one behind them.
  placed(word) {
    const said = word.word.split(/\s+/), ahead = this.spans.slice(this.nPlaced ?? 0).slice(0, 20);
    const skipped = Math.max(0, ahead.findIndex((span) => span.textContent.trim() === said[0]));
    this.nPlaced = (this.nPlaced ?? 0) + skipped + said.length;
    return { ...word, word: "- ".repeat(skipped) + word.word };
  }

  // What is known at the end.
  report({ finish_reason, unspoken = [], real_time_factor, language, language_confidence }) {
    const notes = [];
    if (language) {
      const name = new Intl.DisplayNames(["en"], { type: "language" }).of(language);
      notes.push(`Detected ${name}, confidence ${language_confidence.toFixed(2)}.`);
    }
    if (finish_reason !== "stop") notes.push("A part of the text was not spoken.");
    if (unspoken.length) notes.push(`Not spoken (unknown to this model): ${unspoken.join(" ")}`);
    this.spans.forEach((span) => span.classList.toggle("unspoken", unspoken.some((character) => span.textContent.includes(character))));
    if (real_time_factor) $("rtf").textContent = real_time_factor.toFixed(2);
    $("download").disabled = false;
    keep(this, edit);
    if (notes.length) say(notes.join(" "));
  }

  play(pcm) {
    const samples = Float32Array.from(pcm, (x) => x / 32768), { player } = this, data = document.body.dataset;
    if (!player.n) { show("speaking"); say(""); }
    player.feed(samples);
    this.loudest = samples.reduce((most, x) => Math.max(most, Math.abs(x)), this.loudest);
    this.columns.push(...this.mel.feed(samples));
    if (player.firstMs !== null) $("first").textContent = `${Math.round(player.firstMs)} ms`;
    $("seconds").textContent = `${player.seconds.toFixed(1)} s`;
    $("gaps").textContent = player.gaps ? `${player.gaps} (${player.gapSeconds.toFixed(1)} s)` : "0";
    Object.assign(data, { firstMs: player.firstMs, seconds: player.seconds, gaps: player.gaps, gapSeconds: player.gapSeconds });
    this.isStale = true; // drawn with the next frame: scheduling must not wait for it
  }

  draw() {
    const { width, height } = $("wave"), wave = new OffscreenCanvas(width, height), pen = wave.getContext("2d");
    const style = getComputedStyle(document.body);
    pen.fillStyle = style.getPropertyValue("--ink");
    const { samples, n } = this.player, step = n / width, loudest = Math.max(this.loudest, 0.05);
    let block = 0, from = 0;
    for (let x = 0; x < width; x++) {
      let peak = 0;
      for (let at = Math.floor(x * step); at < (x + 1) * step; at += 8) {
        while (block < samples.length - 1 && at - from >= samples[block].length) from += samples[block++].length;
        peak = Math.max(peak, Math.abs(samples[block][at - from] || 0));
      }
      peak /= loudest;
      pen.fillRect(x, height / 2 - (peak * height) / 2, 1, Math.max(1, peak * height));
    }
    this.wave = wave;
    const canvas = $("mel"), brush = canvas.getContext("2d");
    const image = new ImageData(Math.max(1, this.columns.length), 80);
    this.columns.forEach((column, x) => column.forEach((level, band) => {
      const at = ((79 - band) * image.width + x) * 4;
      image.data.set([255 * level ** 1.5, 200 * level ** 2.5 + 20 * level, 120 * level + 60, 255], at);
    }));
    const small = new OffscreenCanvas(image.width, 80);
    small.getContext("2d").putImageData(image, 0, 0);
    brush.clearRect(0, 0, canvas.width, canvas.height);
    brush.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  tick() {
    const { player } = this, { heard } = player, now = this.words.findLastIndex((word) => word.start <= heard);
    let span = 0;
    this.words.forEach((word, number) => {
      for (let n = word.word.split(/\s+/).length; n > 0 && span < this.spans.length; n--, span++) {
        this.spans[span].classList.toggle("past", number < now);
        this.spans[span].classList.toggle("now", number === now);
      }
    });
    if (player.n) {
      $("ahead").textContent = `${Math.max(0, player.seconds - heard).toFixed(1)} s`;
      if (this.isStale) this.draw();
      this.isStale = false;
      const { width, height } = $("wave"), pen = $("wave").getContext("2d");
      pen.clearRect(0, 0, width, height);
      pen.drawImage(this.wave, 0, 0);
      pen.fillStyle = getComputedStyle(document.body).getPropertyValue("--hot");
      pen.fillRect((heard / player.seconds) * width, 0, 2, height);
    }
    document.body.dataset.heard = heard;
    if (this.isDone && player.isOver) this.end();
    if (talk === this) requestAnimationFrame(() => this.tick());
  }

  stop() {
    this.player.stop();
    if (this.socket.readyState === WebSocket.OPEN && !this.isDone) this.send({ type: "cancel", played_ms: 1e3 * this.player.heard });
    else this.end(true);
  }

  end(isForced = false) {
    if (this.isDone && !isForced && !this.player.isOver) return;
    if (talk === this) talk = null;
    show("quiet");
    $("speak").disabled = $("sample").disabled = false;
    $("stop").disabled = true;
  }
}

// What is chosen; an option that is left empty is the model's own.
function chosen() {
  const optional = ["language", "temperature", "exaggeration"].filter((id) => $(id).value);
  if ($("speed").value !== "1") optional.push("speed");
  const number = (id) => (id === "language" ? $(id).value : Number($(id).value));
  const entries = $("pronunciations").value.split("\n").map((line) => line.split("=").map((side) => side.trim())).filter(([term, ...said]) => term && said.join("="));
  const pronunciations = entries.map(([term, ...said]) => ({ term, replacement: said.join("=") }));
  return { voice: $("voice").value, seed: Number($("seed").value), ...(pronunciations.length && { pronunciations }), ...Object.fromEntries(optional.map((id) => [id, number(id)])) };
}

function edit(text, options) {
  $("text").value = text;
  ["voice", "seed", "language", "temperature", "exaggeration"].forEach((id) => { $(id).value = options[id] ?? ""; });
  $("pronunciations").value = (options.pronunciations ?? []).map(({ term, replacement }) => `${term} = ${replacement}`).join("\n");
  $("speed").value = options.speed ?? 1;
  showSpeed();
  $("text").focus();
}

function showSpeed() {
  $("shown-speed").textContent = `${Number($("speed").value).toFixed(2)} ×`;
}

async function speak(text) {
  const clicked = performance.now();
  if (talk) return;
  if (!text.trim()) { say("Type something to speak first."); $("text").focus(); return; }
  show("preparing");
  $("speak").disabled = $("sample").disabled = true;
  $("stop").disabled = false;
  $("download").disabled = true;
  say("");
  context ??= new AudioContext({ sampleRate: RATE });
  await context.resume();
  talk = last = new Talk(text, chosen(), clicked);
  talk.tick();
}

// Canvases keep the colours that they were drawn with.
matchMedia("(prefers-color-scheme: dark)").onchange = () => {
  if (last) last.isStale = true;
  if (!talk) last?.tick();
};

$("speed").oninput = showSpeed;
$("speak").onclick = () => speak($("text").value);
$("sample").onclick = () => speak(SAMPLES[$("language").value] ?? SAMPLES.en);
$("text").onkeydown = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); speak($("text").value); } };
$("stop").onclick = () => talk?.stop();
addEventListener("keydown", (event) => { if (event.key === "Escape") talk?.stop(); });
$("download").onclick = () => {
  const href = URL.createObjectURL(last.player.wav());
  Object.assign(document.createElement("a"), { href, download: "nightingale.wav" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
};

async function list() {
  const chosen = $("voice").value;
  const voices = await (await fetch("/v1/audio/voices")).json();
  $("voice").replaceChildren(...voices.voices.map((name) => new Option(name)));
  if (voices.voices.includes(chosen)) $("voice").value = chosen;
  const models = await (await fetch("/v1/models")).json();
  const { root, plan, languages } = models.data[0];
  if (languages.length > 1 && !$("language").length) {
    const names = new Intl.DisplayNames(["en"], { type: "language" });
    $("language").replaceChildren(...languages.map((code) => new Option(names.of(code), code, code === "en", code === "en")), new Option("Detect", "auto"));
    $("language").closest("label").hidden = false;
  }
  $("model").textContent = `${root}, plan ${plan}, ${languages.length === 1 ? languages[0] : `${languages.length} languages`}`;
}

function take(file) {
  clip = file;
  $("name").value ||= file.name.replace(/\.[^.]*$/, "").toLowerCase().replace(/[^a-z0-9_-]+/g, "-");
  $("make").disabled = false;
  say(`${file.name}: whose voice is it, and who gave permission?`);
}

const form = $("clone");
form.ondragover = (event) => { event.preventDefault(); form.classList.add("over"); };
form.ondragleave = () => form.classList.remove("over");
form.ondrop = (event) => { event.preventDefault(); form.classList.remove("over"); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); };
$("clip").onchange = () => $("clip").files[0] && take($("clip").files[0]);
form.onsubmit = async (event) => {
  event.preventDefault();
  if (!$("consent").value) { say("Please enter who gave permission to clone this voice."); return; }
  $("make").disabled = true;
  say("Making a voice from the recording …");
  const data = new FormData();
  data.append("voice_name", $("name").value);
  data.append("consent", $("consent").value);
  data.append("voice_file", clip);
  const reply = await fetch("/v1/audio/voices", { method: "POST", body: data });
  const voice = await reply.json();
  if (!reply.ok) { say(voice.error.message); $("make").disabled = false; return; }
  say([voice.summary, ...voice.warnings].join(". "));
  await list();
  $("voice").value = voice.id;
};

list().then(() => show("quiet"), () => say("The server does not answer."));
