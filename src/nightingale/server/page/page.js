// Type, hear it stream, see it grow. No libraries, nothing from elsewhere.

import { Mel } from "/page/mel.js";

const RATE = 24000;
const $ = (id) => document.getElementById(id);
const say = (text) => { $("message").textContent = text; };

let context = null, talk = null, clip = null;

class Talk {
  constructor(text, voice, seed) {
    this.text = text;
    this.samples = [];
    this.n = this.loudest = 0;
    this.words = [];
    this.sources = [];
    this.mel = new Mel();
    this.columns = [];
    this.begun = performance.now();
    this.spans = text.split(/\s+/).filter(Boolean).map((word) => Object.assign(document.createElement("span"), { textContent: word + " " }));
    $("said").replaceChildren(...this.spans);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/v1/audio/speech/stream`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.send({ type: "start", voice, seed });
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
    else if (message.type === "error") { say(message.error.message); this.socket.close(); }
    else if (message.type === "done") {
      this.isDone = true;
      const notes = message.unspoken.length ? [`Not spoken (unknown to this model): ${message.unspoken.join(" ")}`] : [];
      if (message.finish_reason !== "stop") notes.unshift("A part of the text was not said.");
      say(notes.join(" "));
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

  play(pcm) {
    const samples = Float32Array.from(pcm, (x) => x / 32768);
    const buffer = context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    if (this.startAt === undefined) {
      this.first = performance.now() - this.begun;
      this.startAt = this.playAt = context.currentTime + 0.05;
      $("first").textContent = `${Math.round(this.first)} ms`;
      document.body.dataset.firstMs = this.first;
    }
    this.playAt = Math.max(this.playAt, context.currentTime);
    source.start(this.playAt);
    this.playAt += buffer.duration;
    this.sources.push(source);
    this.samples.push(samples);
    this.n += samples.length;
    this.loudest = samples.reduce((most, x) => Math.max(most, Math.abs(x)), this.loudest);
    this.columns.push(...this.mel.feed(samples));
    const seconds = this.n / RATE;
    $("seconds").textContent = `${seconds.toFixed(1)} s`;
    $("rtf").textContent = ((performance.now() - this.begun) / 1e3 / seconds).toFixed(2);
    document.body.dataset.seconds = seconds;
    this.draw();
  }

  get heard() { return this.startAt === undefined ? 0 : Math.max(0, context.currentTime - this.startAt); }

  draw() {
    const wave = $("wave"), pen = wave.getContext("2d"), { width, height } = wave;
    const style = getComputedStyle(document.body);
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = style.getPropertyValue("--ink");
    const step = this.n / width, loudest = Math.max(this.loudest, 0.05);
    let block = 0, from = 0;
    for (let x = 0; x < width; x++) {
      let peak = 0;
      for (let at = Math.floor(x * step); at < (x + 1) * step; at += 8) {
        while (block < this.samples.length - 1 && at - from >= this.samples[block].length) from += this.samples[block++].length;
        peak = Math.max(peak, Math.abs(this.samples[block][at - from] || 0));
      }
      peak /= loudest;
      pen.fillRect(x, height / 2 - (peak * height) / 2, 1, Math.max(1, peak * height));
    }
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
    const heard = this.heard, now = this.words.findLastIndex((word) => word.start <= heard);
    let span = 0;
    this.words.forEach((word, number) => {
      for (let n = word.word.split(/\s+/).length; n > 0 && span < this.spans.length; n--, span++)
        this.spans[span].className = number < now ? "past" : number === now ? "now" : "";
    });
    if (this.startAt !== undefined) {
      $("ahead").textContent = `${Math.max(0, this.n / RATE - heard).toFixed(1)} s`;
      const cursor = $("wave").getContext("2d");
      this.draw();
      cursor.fillStyle = getComputedStyle(document.body).getPropertyValue("--hot");
      cursor.fillRect((heard * RATE / Math.max(1, this.n)) * $("wave").width, 0, 2, $("wave").height);
    }
    document.body.dataset.heard = heard;
    if (this.isDone && heard >= this.n / RATE) this.end();
    if (talk === this) requestAnimationFrame(() => this.tick());
  }

  stop() {
    this.sources.forEach((source) => source.stop());
    if (this.socket.readyState === WebSocket.OPEN && !this.isDone) this.send({ type: "cancel", played_ms: 1e3 * this.heard });
    else this.end(true);
  }

  end(isForced = false) {
    if (this.isDone && !isForced && this.heard < this.n / RATE) return;
    if (talk === this) talk = null;
    document.body.dataset.state = "quiet";
    $("speak").disabled = false;
    $("stop").disabled = true;
  }
}

$("speak").onclick = async () => {
  context ??= new AudioContext({ sampleRate: RATE });
  await context.resume();
  say("");
  document.body.dataset.state = "speaking";
  $("speak").disabled = true;
  $("stop").disabled = false;
  talk = new Talk($("text").value, $("voice").value, Number($("seed").value));
  talk.tick();
};
$("stop").onclick = () => talk?.stop();

async function list() {
  const chosen = $("voice").value;
  const voices = await (await fetch("/v1/audio/voices")).json();
  $("voice").replaceChildren(...voices.voices.map((name) => new Option(name)));
  if (voices.voices.includes(chosen)) $("voice").value = chosen;
  const models = await (await fetch("/v1/models")).json();
  const { root, plan, languages } = models.data[0];
  $("model").textContent = `${root}, plan ${plan}, ${languages.length === 1 ? languages[0] : `${languages.length} languages`}`;
}

function take(file) {
  clip = file;
  $("name").value ||= file.name.replace(/\.[^.]*$/, "").toLowerCase().replace(/[^a-z0-9_-]+/g, "-");
  $("make").disabled = false;
  say(`${file.name}: who agreed to this?`);
}

const form = $("clone");
form.ondragover = (event) => { event.preventDefault(); form.classList.add("over"); };
form.ondragleave = () => form.classList.remove("over");
form.ondrop = (event) => { event.preventDefault(); form.classList.remove("over"); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); };
$("clip").onchange = () => $("clip").files[0] && take($("clip").files[0]);
form.onsubmit = async (event) => {
  event.preventDefault();
  if (!$("consent").value) { say("Please say who agreed to this."); return; }
  $("make").disabled = true;
  say("Listening to the clip …");
  const data = new FormData();
  data.append("voice_name", $("name").value);
  data.append("consent", $("consent").value);
  data.append("voice_file", clip);
  const reply = await fetch("/v1/audio/voices", { method: "POST", body: data });
  const told = await reply.json();
  if (!reply.ok) { say(told.error.message); $("make").disabled = false; return; }
  say([told.summary, ...told.warnings].join(". "));
  await list();
  $("voice").value = told.id;
};

list().then(() => { document.body.dataset.state = "quiet"; }, () => say("The server does not answer."));
