// Small drawings on canvases: strips over a time axis and sparks.
import { store } from './store.js';

let palette = null;
store.on('theme', () => { palette = null; });

// colours reads what the style sheet says, once for each theme.
export function colours() {
  if (!palette) {
    const css = getComputedStyle(document.documentElement);
    const read = (name) => css.getPropertyValue('--' + name).trim();
    palette = Object.fromEntries(['prefill', 'decode', 'util', 'power', 'line', 'faint', 'text', 'muted'].map((n) => [n, read(n)]));
  }
  return palette;
}

// Sizes come from the browser when they change: to ask for one while figures
// change would lay out the whole page, once for each strip.
const sizes = new WeakMap();
const resized = new ResizeObserver((all) => {
  for (const one of all) sizes.set(one.target, one.contentRect);
  store.tell('canvas');
});

// sized makes the canvas as sharp as the screen and returns its context, null
// while it has no room.
export function sized(canvas) {
  const size = sizes.get(canvas);
  if (!size) {
    sizes.set(canvas, { width: 0, height: 0 });
    resized.observe(canvas);
    return null;
  }
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const { width, height } = size;
  if (!width || !height) return null;
  const w = Math.round(width * ratio);
  const h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const c = canvas.getContext('2d');
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return { c, width, height };
}

// peaks gives each pixel column the greatest value in it, NaN where there is
// none: what lasts half a second must not vanish on a ten-minute axis.
export function peaks(series, name, from, to, width) {
  const out = new Float64Array(Math.max(1, Math.floor(width))).fill(NaN);
  const column = series.columns[name];
  const scale = out.length / (to - from);
  for (let i = Math.max(0, series.at(from)); i < series.t.length; i++) {
    const v = column[i];
    if (Number.isNaN(v)) continue;
    const x = Math.floor((series.t[i] - from) * scale);
    if (x < 0 || x >= out.length) continue;
    if (!(out[x] >= v)) out[x] = v;
  }
  return out;
}

// bridge fills pixels between two samples of a series, as far as its interval
// reaches, so that a coarse source is no comb.
export function bridge(values, pixels) {
  let last = -Infinity;
  for (let x = 0; x < values.length; x++) {
    if (!Number.isNaN(values[x])) last = x;
    else if (x - last <= pixels) values[x] = values[x - 1];
  }
  return values;
}

// area fills from the ground up to each value.
export function area(c, values, most, top, height, colour, alpha) {
  c.fillStyle = colour;
  c.globalAlpha = alpha;
  c.beginPath();
  let x = 0;
  while (x < values.length) {
    if (Number.isNaN(values[x])) { x++; continue; }
    const start = x;
    c.moveTo(x, top + height);
    while (x < values.length && !Number.isNaN(values[x])) {
      const y = top + height - Math.min(values[x] / most, 1) * height;
      c.lineTo(x, y);
      c.lineTo(x + 1, y);
      x++;
    }
    c.lineTo(x, top + height);
    c.lineTo(start, top + height);
  }
  c.fill();
  c.globalAlpha = 1;
}

// line draws the values' upper edge.
export function line(c, values, most, top, height, colour, thick) {
  c.strokeStyle = colour;
  c.lineWidth = thick;
  c.lineJoin = 'round';
  c.beginPath();
  let open = false;
  for (let x = 0; x < values.length; x++) {
    if (Number.isNaN(values[x])) { open = false; continue; }
    const y = top + height - Math.min(values[x] / most, 1) * height;
    if (open) c.lineTo(x + 0.5, y);
    else c.moveTo(x + 0.5, y);
    open = true;
  }
  c.stroke();
}

// greatest returns the top of a scale: the greatest value, rounded up to a
// number that people read easily.
export function greatest(values, least) {
  let most = least;
  for (const v of values) if (v > most) most = v;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= most) return step * power;
  return most;
}

// spark draws an engine's last two minutes: tokens computed, tokens generated.
export function spark(canvas, series, now) {
  const at = sized(canvas);
  if (!at) return;
  const { c, width, height } = at;
  const p = colours();
  c.fillStyle = p.line;
  c.fillRect(0, height - 1, width, 1);
  if (!series) return;
  const from = now - 120000;
  const pixels = Math.ceil(width / 240) + 1;
  const half = Math.floor(height / 2);
  const prefill = bridge(peaks(series, 'prefill', from, now, width), pixels);
  const decode = bridge(peaks(series, 'decode', from, now, width), pixels);
  area(c, prefill, greatest(prefill, 100), 0, half - 1, p.prefill, 0.85);
  area(c, decode, greatest(decode, 20), half + 1, height - half - 2, p.decode, 0.3);
  line(c, decode, greatest(decode, 20), half + 1, height - half - 2, p.decode, 1.2);
}
