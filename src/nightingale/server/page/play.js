// Samples in as they come, sound out without seams; counts what a listener would notice.

const RATE = 24000;
const AHEAD_S = 0.08; // a small jitter buffer: playing starts so much later than the first samples
const AUDIBLE = 0.01; // of full scale, as in audio/audible.py

export class Player {
  samples = []; // as they came
  n = 0; // how many
  gaps = 0;
  gapSeconds = 0;
  firstMs = null; // from the click to the first audible sample leaving the speaker
  #context;
  #clicked;
  #pieces = []; // { at: when it is played, from: its first sample, source }
  #playAt = null;

  constructor(context, clicked) {
    this.#context = context;
    this.#clicked = clicked;
  }

  get seconds() { return this.n / RATE; }

  feed(samples) {
    const buffer = this.#context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(this.#context, { buffer });
    source.connect(this.#context.destination);
    const now = this.#context.currentTime;
    if (this.#playAt === null) this.#playAt = now + AHEAD_S;
    if (this.#playAt < now) { // everything was played, and more should have been there
      this.gaps += 1;
      this.gapSeconds += now + AHEAD_S - this.#playAt;
      this.#playAt = now + AHEAD_S;
    }
    source.start(this.#playAt);
    this.#pieces.push({ at: this.#playAt, from: this.n, source });
    if (this.firstMs === null) this.#listen(samples);
    this.#playAt += buffer.duration;
    this.samples.push(samples);
    this.n += samples.length;
  }

  #listen(samples) {
    const first = samples.findIndex((x) => Math.abs(x) > AUDIBLE);
    if (first >= 0) this.firstMs = this.#leavesAt(this.#playAt + first / RATE) - this.#clicked;
  }

  // When a sample that is scheduled for a time of the context leaves the speaker.
  #leavesAt(time) {
    const { contextTime, performanceTime } = this.#context.getOutputTimestamp?.() ?? {};
    if (contextTime > 0) return performanceTime + 1e3 * (time - contextTime);
    const latency = this.#context.outputLatency || this.#context.baseLatency || 0;
    return performance.now() + 1e3 * (time - this.#context.currentTime + latency);
  }

  // Seconds of the speech that were played.
  get heard() {
    const now = this.#context.currentTime, piece = this.#pieces.findLast(({ at }) => at <= now);
    if (!piece) return 0;
    return Math.min(piece.from / RATE + now - piece.at, piece.from / RATE + piece.source.buffer.duration);
  }

  get isOver() { return this.#playAt === null || this.#context.currentTime >= this.#playAt; }

  stop() { this.#pieces.forEach(({ source }) => source.stop()); }

  // Everything as a WAV file.
  wav() {
    const head = new DataView(new ArrayBuffer(44)), pcm = new Int16Array(this.n);
    const text = (at, letters) => [...letters].forEach((letter, n) => head.setUint8(at + n, letter.charCodeAt(0)));
    text(0, "RIFF"); head.setUint32(4, 36 + 2 * this.n, true); text(8, "WAVEfmt ");
    head.setUint32(16, 16, true); head.setUint16(20, 1, true); head.setUint16(22, 1, true);
    head.setUint32(24, RATE, true); head.setUint32(28, 2 * RATE, true); head.setUint16(32, 2, true); head.setUint16(34, 16, true);
    text(36, "data"); head.setUint32(40, 2 * this.n, true);
    let at = 0;
    for (const samples of this.samples) for (const x of samples) pcm[at++] = Math.round(x * 32768);
    return new Blob([head, pcm], { type: "audio/wav" });
  }
}
