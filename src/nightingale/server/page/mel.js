// Samples -> columns of a mel spectrogram, one for every hop, as they come.

const SIZE = 1024, HOP = 480, BANDS = 80, RATE = 24000;

const hann = Float32Array.from({ length: SIZE }, (_, n) => 0.5 - 0.5 * Math.cos((2 * Math.PI * n) / SIZE));
const mel = (hz) => 2595 * Math.log10(1 + hz / 700);
const hz = (m) => 700 * (10 ** (m / 2595) - 1);
const edges = Array.from({ length: BANDS + 2 }, (_, n) => (hz((mel(RATE / 2) * n) / (BANDS + 1)) / RATE) * SIZE);

function transform(re, im) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) { [re[i], re[j]] = [re[j], re[i]]; [im[i], im[j]] = [im[j], im[i]]; }
  }
  for (let size = 2; size <= n; size <<= 1) {
    const angle = (-2 * Math.PI) / size;
    for (let from = 0; from < n; from += size) {
      for (let k = 0; k < size / 2; k++) {
        const a = from + k, b = a + size / 2, c = Math.cos(angle * k), s = Math.sin(angle * k);
        const x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
        re[b] = re[a] - x; im[b] = im[a] - y; re[a] += x; im[a] += y;
      }
    }
  }
}

export class Mel {
  #rest = new Float32Array(0);

  feed(samples) {
    const all = new Float32Array(this.#rest.length + samples.length);
    all.set(this.#rest);
    all.set(samples, this.#rest.length);
    const columns = [];
    let at = 0;
    for (; at + SIZE <= all.length; at += HOP) columns.push(this.#column(all.subarray(at, at + SIZE)));
    this.#rest = all.slice(at);
    return columns;
  }

  #column(frame) {
    const re = Float32Array.from(frame, (x, n) => x * hann[n]), im = new Float32Array(SIZE);
    transform(re, im);
    return Float32Array.from({ length: BANDS }, (_, band) => {
      const [low, middle, high] = edges.slice(band, band + 3);
      let sum = 1e-5;
      for (let bin = Math.ceil(low); bin < high && bin <= SIZE / 2; bin++) {
        const weight = bin < middle ? (bin - low) / (middle - low) : (high - bin) / (high - middle);
        sum += weight * Math.hypot(re[bin], im[bin]);
      }
      return Math.min(1, Math.max(0, (Math.log10(sum) + 3) / 5));
    });
  }
}
