// What is known at present. Views read it and are told by name what changed.

const KEPT_SAMPLES = 1200; // ten minutes at 2 Hz
const KEPT_DECISIONS = 500;

// Series is columns of numbers over time, oldest first; at most ten minutes.
class Series {
  constructor(columns) {
    this.t = [];
    this.columns = Object.fromEntries(columns.map((c) => [c, []]));
  }

  get last() { return this.t.length ? this.t[this.t.length - 1] : 0; }

  // add takes samples that are newer than the last one, or older than the first.
  add(times, columns) {
    const t = parsed(times);
    if (this.t.length && t.length && t[0] < this.t[0]) this.#before(t, columns);
    let from = 0;
    if (this.t.length) while (from < t.length && t[from] <= this.last) from++;
    for (let i = from; i < t.length; i++) this.t.push(t[i]);
    for (const name of Object.keys(this.columns)) {
      const to = this.columns[name];
      for (let i = from; i < t.length; i++) to.push(value(columns[name], i));
    }
    const extra = this.t.length - KEPT_SAMPLES;
    if (extra > 60) {
      this.t.splice(0, extra);
      for (const c of Object.values(this.columns)) c.splice(0, extra);
    }
  }

  #before(t, columns) {
    let n = 0;
    while (n < t.length && t[n] < this.t[0]) n++;
    this.t = t.slice(0, n).concat(this.t);
    for (const name of Object.keys(this.columns)) {
      const earlier = new Array(n);
      for (let i = 0; i < n; i++) earlier[i] = value(columns[name], i);
      this.columns[name] = earlier.concat(this.columns[name]);
    }
  }

  // at returns the index of the sample at or before a moment, -1 if none is.
  at(ms) {
    let low = 0;
    let high = this.t.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.t[mid] <= ms) low = mid + 1;
      else high = mid;
    }
    return low - 1;
  }
}

// Many series have the same times: they are read once.
let lastTimes = [];
let lastParsed = [];
function parsed(times) {
  const n = times.length;
  if (n !== lastTimes.length || times[0] !== lastTimes[0] || times[n - 1] !== lastTimes[n - 1]) {
    lastTimes = times;
    lastParsed = times.map((x) => Date.parse(x));
  }
  return lastParsed;
}

const value = (column, i) => (column && typeof column[i] === 'number' ? column[i] : NaN);

const listeners = new Map();

export const store = {
  topology: null,
  received: 0, // performance.now() of the last topology
  link: { word: 'connecting', detail: '' },
  gpuInterval: 0.5,
  gpuNote: null,
  tokens: new Map(), // engine -> Series prefill, decode
  gpus: new Map(), // engine -> Map of index -> Series utilization, power, memory
  decisions: [], // newest first
  seen: 0, // decisions that came, for those who count

  on(name, listener) {
    if (!listeners.has(name)) listeners.set(name, new Set());
    listeners.get(name).add(listener);
    return () => listeners.get(name).delete(listener);
  },

  tell(name) {
    for (const listener of listeners.get(name) || []) listener();
  },

  // now is the server's time, for ages.
  now() {
    if (!this.topology) return Date.now();
    return Date.parse(this.topology.time) + performance.now() - this.received;
  },

  age(time) { return Math.max(0, (this.now() - Date.parse(time)) / 1000); },

  takeTopology(t) {
    if (this.topology && this.topology.start_time !== t.start_time) this.forget();
    this.topology = t;
    this.received = performance.now();
    this.gpuNote = t.gpu_note ?? this.gpuNote;
    this.tell('topology');
  },

  // forget drops what another process had counted.
  forget() {
    this.decisions = [];
    this.tokens.clear();
    this.gpus.clear();
    this.tell('restart');
  },

  takeGPU(v) {
    if (v.interval_s) this.gpuInterval = v.interval_s;
    this.gpuNote = v.note ?? null;
    const tokens = v.tokens || { time: [], engines: [] };
    for (const line of tokens.engines) {
      if (!this.tokens.has(line.engine)) this.tokens.set(line.engine, new Series(['prefill', 'decode']));
      this.tokens.get(line.engine).add(tokens.time, { prefill: line.prefill_tokens_per_s, decode: line.decode_tokens_per_s });
    }
    for (const one of v.series || []) {
      if (!one.time || !one.time.length) continue;
      if (!this.gpus.has(one.engine)) this.gpus.set(one.engine, new Map());
      const devices = this.gpus.get(one.engine);
      if (!devices.has(one.index)) devices.set(one.index, new Series(['utilization', 'power', 'memory']));
      const series = devices.get(one.index);
      series.source = one.source;
      series.interval = one.interval_s;
      series.add(one.time, { utilization: one.utilization, power: one.power_w, memory: one.memory_used_bytes });
    }
    this.tell('gpu');
  },

  // takeDecisions adds records, newest first, that are not there yet.
  takeDecisions(records) {
    const key = (x) => x.request_id + ' ' + x.time + ' ' + (x.result ? x.result.duration_s : '');
    const there = new Set(this.decisions.map(key));
    const fresh = records.filter((x) => !there.has(key(x)));
    if (!fresh.length) return;
    this.seen += fresh.length;
    const mixed = this.decisions.length > 0 && fresh.length > 20;
    this.decisions = fresh.concat(this.decisions);
    if (mixed) this.decisions.sort((a, b) => ended(b) - ended(a));
    this.decisions.length = Math.min(this.decisions.length, KEPT_DECISIONS);
    this.tell('decisions');
  },
};

const ended = (x) => Date.parse(x.time) + (x.result && x.result.duration_s ? x.result.duration_s * 1000 : 0);
