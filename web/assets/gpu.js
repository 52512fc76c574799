// The engines' devices and what their requests asked for, on one axis of ten
// minutes: the shape of bursts, an idle replica, a saturated one and one that
// waits look different at a glance.
import { h, text, attr, style, list, replace } from './dom.js';
import { store, deviceKey } from './store.js';
import { history } from './live.js';
import { mark, STATE_WORDS } from './marks.js';
import { sized, peaks, bridge, area, line, greatest, colours } from './chart.js';
import * as f from './format.js';

const SPAN = 600000; // ms
const RECENT = 10000; // ms that a verdict goes by

export function gpuView() {
  const note = h('div', { class: 'notice', role: 'note', hidden: true });
  const axis = h('div', { class: 'gpu-axis', 'aria-hidden': 'true' }, h('span', { class: 'axis-title' }), h('div', { class: 'axis-ticks' }), h('span', { class: 'axis-at' }));
  for (let m = 10; m >= 0; m--) {
    const tick = h('span', {}, m === 0 ? 'now' : '−' + m + ' min');
    style(tick, 'left', (10 - m) * 10 + '%');
    axis.children[1].append(tick);
  }
  const engines = h('div', { class: 'gpu-engines' });
  const cursor = h('div', { class: 'cursor', hidden: true });
  const spoken = h('p', { class: 'hidden', 'aria-live': 'polite' });
  const only = h('input', { type: 'search', placeholder: 'Filter engines', 'aria-label': 'Filter engines by name' });
  const key = h('div', { class: 'gpu-key' }, ['prefill', 'decode', 'util', 'power'].map((k) => h('span', { class: 'key ' + k }, { prefill: 'prompt tokens computed', decode: 'tokens generated', util: 'utilisation', power: 'power, of its limit' }[k])), only);
  const body = h('div', { class: 'gpu-body', tabindex: 0, role: 'group', 'aria-label': 'Time axis of ten minutes; arrow keys move along it' }, axis, engines, cursor);
  const node = h('div', { class: 'view gpu' }, note, key, body, spoken);

  let entries = new Map();
  let at = null; // ms before now that the cursor stands at, null = now
  const seen = new Set();
  const watcher = new IntersectionObserver((all) => {
    for (const { target, isIntersecting } of all) {
      const name = target.dataset.engine;
      if (isIntersecting && target.isConnected) {
        seen.add(name);
        const e = store.topology && store.topology.engines.find((one) => one.name === name);
        if (e && entries.has(name)) entries.get(name).set(e);
        history(name);
      } else seen.delete(name);
    }
    draw();
  });

  function update(what) {
    const t = store.topology;
    if (!t) return;
    if (what.includes('topology')) {
      const want = only.value.trim().toLowerCase();
      const order = [...t.engines].filter((e) => e.name.toLowerCase().includes(want)).sort((a, b) => Boolean(b.gpus && b.gpus.length) - Boolean(a.gpus && a.gpus.length));
      entries = list(engines, order, (e) => e.name, (e) => {
        const made = engineRows(e);
        attr(made.node, 'data-engine', e.name);
        watcher.observe(made.node);
        return made;
      }, (entry, e) => { if (seen.has(e.name) || !entry.built()) entry.set(e); });
      absent(t);
    }
    // A pixel is more than half a second: new samples are drawn once in a second.
    if (what.some((w) => ['theme', 'canvas'].includes(w)) || (what.includes('gpu') && performance.now() - drawn > 900)) draw();
  }

  function absent(t) {
    const some = t.engines.some((e) => e.gpus && e.gpus.length);
    const why = store.gpuNote;
    note.hidden = some && !why;
    if (note.hidden) return;
    attr(note, 'data-kind', some ? 'part' : 'none');
    if (!note.firstChild) note.append(h('strong', {}), h('span', {}), h('small', {}));
    text(note.children[0], some ? 'Some GPUs are missing' : 'No GPU figures');
    text(note.children[1], why || 'Nothing was heard from a source yet.');
    text(note.children[2], some ? '' : 'Sources are nvidia-smi on this machine and dcgm-exporters named by gpu.dcgm; engines.gpus says which devices are an engine\'s. The engines\' tokens are shown either way.');
  }

  // draw draws one engine a frame, so that a person's key never waits for all.
  let queue = [];
  let planned = false;
  let drawn = 0;
  function draw() {
    drawn = performance.now();
    queue = [...entries.keys()].filter((name) => seen.has(name));
    const now = store.now();
    place(now, at === null ? now : now - at);
    if (!planned && queue.length) one();
  }

  function one() {
    planned = false;
    const entry = entries.get(queue.shift());
    const now = store.now();
    if (entry && node.isConnected) entry.draw(now, at === null ? now : now - at, at !== null);
    if (queue.length) {
      planned = true;
      requestAnimationFrame(one);
    }
  }

  function place(now, moment) {
    cursor.hidden = at === null;
    text(axis.lastChild, at === null ? 'now' : f.clock(moment) + '  ' + f.ago(now - moment));
    if (at === null) return;
    const strip = engines.querySelector('canvas');
    if (!strip) return;
    const frame = body.getBoundingClientRect();
    const r = strip.getBoundingClientRect();
    style(cursor, 'left', (r.left - frame.left + r.width * (1 - at / SPAN)).toFixed(1) + 'px');
  }

  function point(e) {
    const strip = engines.querySelector('canvas');
    if (!strip) return;
    const r = strip.getBoundingClientRect();
    const x = e.clientX - r.left;
    at = x < 0 || x > r.width ? null : SPAN * (1 - x / r.width);
    draw();
  }

  function speak() {
    const now = store.now();
    const moment = at === null ? now : now - at;
    text(spoken, f.ago(now - moment) + ': ' + [...entries].filter(([name]) => seen.has(name)).map(([name, entry]) => name + ' ' + entry.words(moment)).join('; '));
  }

  body.addEventListener('pointermove', point);
  body.addEventListener('pointerleave', () => { at = null; draw(); });
  body.addEventListener('keydown', (e) => {
    const step = e.shiftKey ? 10000 : 1000;
    if (e.key === 'ArrowLeft') at = Math.min((at ?? 0) + step, SPAN);
    else if (e.key === 'ArrowRight') at = at !== null && at > step ? at - step : null;
    else if (e.key === 'Home') at = SPAN;
    else if (e.key === 'End' || e.key === 'Escape') at = null;
    else return;
    e.preventDefault();
    draw();
    speak();
  });
  only.addEventListener('input', () => update(['topology']));
  store.on('link', () => { if (store.link.word === 'live') seen.forEach((name) => history(name)); }); // what was missed meanwhile

  return {
    node,
    update,
    show() { update(['topology', 'gpu']); },
    key(e) {
      if (e.key !== '/') return false;
      only.focus();
      return true;
    },
  };
}

// strip is one row: what it is, its canvas, its figures at the moment.
function strip(kind) {
  const name = h('div', { class: 'strip-name' });
  const canvas = h('canvas', { class: 'strip ' + kind, role: 'img', 'aria-label': (kind === 'device' ? 'Utilisation and power' : kind + ' tokens per second') + ', ten minutes' });
  const values = h('div', { class: 'strip-values' });
  return { node: h('div', { class: 'strip-row ' + kind }, name, canvas, values), name, canvas, values };
}

function engineRows(engine) {
  const node = h('section', { class: 'gpu-engine' });
  let shown = engine;
  let parts = null; // made when somebody sees them: two hundred engines have a thousand strips
  let rows = new Map();

  function build() {
    const state = mark('state');
    const verdict = h('strong', { class: 'verdict' });
    const load = h('span', { class: 'note' });
    const prefill = strip('prefill');
    const decode = strip('decode');
    const devices = h('div', { class: 'devices' });
    for (const [row, word] of [[prefill, 'prefill'], [decode, 'decode']]) replace(row.name, h('span', {}, word), h('span', { class: 'note' }));
    node.append(h('header', {}, h('h3', {}, engine.name), h('span', { class: 'chip' }, engine.profile || 'none'), state.node, verdict, load), prefill.node, decode.node, devices);
    parts = { state, verdict, load, prefill, decode, devices };
    set(shown);
  }

  function set(e) {
    shown = e;
    if (!parts) return;
    parts.state.set(e.state, STATE_WORDS[e.state]);
    const leases = e.leases || { prefill: 0, decode: 0 };
    text(parts.load, f.whole(leases.prefill) + ' prefill · ' + f.whole(leases.decode) + ' decode · queue ' + f.count(e.queue_tokens) + ' tokens');
    rows = list(parts.devices, e.gpus || [], deviceKey, () => {
      const made = strip('device');
      replace(made.name, h('b', {}), h('span', { class: 'note' }), h('span', { class: 'note' }));
      return made;
    }, describe);
  }

  function describe(row, g) {
    const [name, kind, about] = row.name.children;
    text(name, 'GPU ' + g.index);
    text(kind, (g.name || '').replace(/^NVIDIA /, ''));
    const slow = g.throttle || [];
    text(about, f.celsius(g.temperature_c) + ' · ' + f.hertz(g.sm_clock_hz) + ' · ' + f.bytes(g.memory_used_bytes) + ' of ' + f.bytes(g.memory_total_bytes) + (slow.length ? ' · slowed: ' + slow.join(', ') : ''));
    row.node.classList.toggle('slowed', slow.length > 0);
    row.node.classList.toggle('old', g.age_s > Math.max(5, 3 * (g.interval_s || 0)));
    attr(row.name, 'title', [g.name, 'source: ' + g.source + ', every ' + f.seconds(g.interval_s), 'heard ' + f.age(g.age_s) + ' ago', 'throttle: ' + (slow.join(', ') || 'none')].join('\n'));
    row.limit = g.power_limit_w;
    row.interval = g.interval_s || 0.5;
    row.old = g.age_s;
  }

  function draw(now, moment, past) {
    if (!parts) build();
    const { prefill, decode, verdict } = parts;
    const from = now - SPAN;
    const tokens = store.tokens.get(shown.name);
    drawTokens(prefill, tokens, 'prefill', from, now, moment);
    drawTokens(decode, tokens, 'decode', from, now, moment);
    const series = store.gpus.get(shown.name) || new Map();
    for (const [key, row] of rows) drawDevice(row, series.get(key), from, now, moment, past);
    const word = judge(shown, series, tokens, now);
    text(verdict, word[0]);
    attr(verdict, 'title', word[1]);
    attr(verdict, 'data-word', word[0]);
  }

  function words(moment) {
    const tokens = store.tokens.get(shown.name);
    const i = tokens ? tokens.at(moment) : -1;
    const parts = i < 0 ? [] : ['prefill ' + f.rate(tokens.columns.prefill[i]), 'decode ' + f.rate(tokens.columns.decode[i])];
    for (const series of (store.gpus.get(shown.name) || new Map()).values()) {
      const j = series.at(moment);
      if (j >= 0) parts.push('GPU ' + series.index + ' ' + f.percent(series.columns.utilization[j]) + ' ' + f.watts(series.columns.power[j]));
    }
    return parts.join(', ');
  }
  return { node, set, draw, words, built: () => parts !== null };
}

function drawTokens(row, series, name, from, now, moment) {
  const at = sized(row.canvas);
  if (!at) return;
  const { c, width, height } = at;
  const p = colours();
  grid(c, width, height, p);
  const i = series ? series.at(moment) : -1;
  text(row.values, i < 0 ? f.NONE : f.rate(series.columns[name][i]) + ' tokens/s');
  if (!series) return;
  const values = bridge(peaks(series, name, from, now, width), Math.ceil(width / 1200) + 1);
  const most = greatest(values, 10);
  area(c, values, most, 1, height - 1, p[name], name === 'prefill' ? 0.85 : 0.35);
  if (name === 'decode') line(c, values, most, 1, height - 1, p.decode, 1.2);
  text(row.name.children[1], 'scale to ' + f.count(most) + '/s');
}

function drawDevice(row, series, from, now, moment, past) {
  const at = sized(row.canvas);
  if (!at) return;
  const { c, width, height } = at;
  const p = colours();
  grid(c, width, height, p);
  const i = series ? series.at(moment) : -1;
  const isOld = i >= 0 && moment - series.t[i] > Math.max(5000, 3000 * row.interval);
  text(row.values, i < 0 || (isOld && past) ? f.NONE : f.percent(series.columns.utilization[i]) + ' · ' + f.watts(series.columns.power[i]) + (isOld ? ' · ' + f.age((moment - series.t[i]) / 1000) + ' old' : ''));
  if (!series) return;
  const pixels = Math.ceil((width * Math.max(row.interval, series.interval || 0.5) * 1500) / SPAN) + 1;
  const utilization = bridge(peaks(series, 'utilization', from, now, width), pixels);
  const power = bridge(peaks(series, 'power', from, now, width), pixels);
  area(c, utilization, 1, 1, height - 1, p.util, 0.55);
  line(c, power, row.limit || greatest(power, 100), 1, height - 1, p.power, 1.3);
}

function grid(c, width, height, p) {
  c.fillStyle = p.line;
  for (let m = 0; m <= 10; m++) c.fillRect(Math.min(Math.round((width * m) / 10), width - 1), 0, 1, height);
  c.fillRect(0, height - 1, width, 1);
}

// judge puts the last ten seconds into one word.
function judge(e, series, tokens, now) {
  const mean = (one, name) => {
    let sum = 0;
    let n = 0;
    for (let i = one.t.length - 1; i >= 0 && one.t[i] > now - RECENT; i--) {
      const v = one.columns[name][i];
      if (!Number.isNaN(v)) { sum += v; n++; }
    }
    return n ? sum / n : NaN;
  };
  const busy = [...series.values()].map((one) => mean(one, 'utilization')).filter((v) => !Number.isNaN(v));
  const running = e.leases ? e.leases.prefill + e.leases.decode : 0;
  if (!busy.length) {
    if (running) return ['working', 'requests are on it; its GPUs are not seen'];
    return ['idle', 'no requests are on it; its GPUs are not seen'];
  }
  const use = Math.max(...busy);
  if (use >= 0.9 && running) return ['saturated', 'utilisation of 90 % and more for ten seconds'];
  if (use >= 0.2 && !running) return ['other work', 'its GPUs work though Ramjet sent it nothing'];
  if (use < 0.2 && running) return ['waits', 'requests are on it and its GPUs rest'];
  if (use < 0.2) return ['idle', 'no requests, and its GPUs rest'];
  return ['busy', 'requests are on it and its GPUs work'];
}
