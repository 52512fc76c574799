// What is known at present. Views read it and are told by name what changed.

const KEPT_SAMPLES = 1200; // ten minutes at 2 Hz
const KEPT_DECISIONS = 500;

// deviceKey tells the GPUs of one engine apart: two machines have the same
// indexes.
export const deviceKey = (gpu) => gpu.index + ' ' + gpu.source;

// Series is columns of numbers over time, oldest first; at most ten minutes.
class Series {
  constructor(columns) {
    this.t = [];
    this.columns = Object.fromEntries(columns.map((c) => [c, []]));
  }

  get last() { return this.t.length ? this.t[this.t.length - 1] : 0; }

  // add takes samples, oldest first, wherever they belong: some fill what was
  // missed while the connection was broken. What is there already stays.
  add(times, columns) {
    const t = parsed(times);
    if (!t.length) return;
    if (t[0] <= this.last) this.#merge(t, columns);
    else {
      for (const x of t) this.t.push(x);
      for (const name of Object.keys(this.columns)) {
        const to = this.columns[name];
        for (let i = 0; i < t.length; i++) to.push(value(columns[name], i));
      }
    }
    const extra = this.t.length - KEPT_SAMPLES;
    if (extra > 60) {
      this.t.splice(0, extra);
      for (const c of Object.values(this.columns)) c.splice(0, extra);
    }
  }

  #merge(t, columns) {
    const names = Object.keys(this.columns);
    const old = { t: this.t, columns: this.columns };
    this.t = [];
    this.columns = Object.fromEntries(names.map((name) => [name, []]));
    for (let i = 0, j = 0; i < old.t.length || j < t.length;) {
      const kept = j === t.length || old.t[i] <= t[j];
      const at = kept ? old.t[i] : t[j];
      this.t.push(at);
      for (const name of names) this.columns[name].push(kept ? old.columns[name][i] : value(columns[name], j));
      if (kept) i++;
      else j++;
      while (j < t.length && t[j] <= at) j++;
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
  gpus: new Map(), // engine -> Map of deviceKey -> Series utilization, power, memory
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
    this.drop(t.engines);
    this.tell('topology');
  },

  // drop forgets the devices that no engine has any more, or that another source
  // speaks for now.
  drop(engines) {
    const present = new Map(engines.map((e) => [e.name, new Set((e.gpus || []).map(deviceKey))]));
    for (const [name, devices] of this.gpus) {
      const keep = present.get(name);
      for (const key of devices.keys()) if (!keep || !keep.has(key)) devices.delete(key);
      if (!devices.size) this.gpus.delete(name);
    }
  },

  // forget drops what another process had counted.
  forget() {
    this.decisions = [];
    this.tokens.clear();
    this.gpus.clear();
    this.tell('restart');
  },

  // takeGPU returns the engines that have a device of which nothing was known.
  takeGPU(v) {
    const fresh = new Set();
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
      const key = deviceKey(one);
      if (!devices.has(key)) {
        devices.set(key, new Series(['utilization', 'power', 'memory']));
        fresh.add(one.engine);
      }
      const series = devices.get(key);
      series.index = one.index;
      series.interval = one.interval_s;
      series.add(one.time, { utilization: one.utilization, power: one.power_w, memory: one.memory_used_bytes });
    }
    this.tell('gpu');
    return fresh;
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
