// Turns figures into words. An unknown figure is a dash, never a 0.

export const NONE = '–';
const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

const known = (v) => typeof v === 'number' && Number.isFinite(v);

// count writes a whole number, shortened from a hundred thousand on.
export function count(v) {
  if (!known(v)) return NONE;
  const a = Math.abs(v);
  if (a >= 1e9) return fixed(v / 1e9) + ' G';
  if (a >= 1e6) return fixed(v / 1e6) + ' M';
  if (a >= 1e5) return fixed(v / 1e3) + ' k';
  return grouped.format(v);
}

// whole writes a whole number in full.
export function whole(v) { return known(v) ? grouped.format(v) : NONE; }

// three digits, whatever the size
function fixed(v) {
  const a = Math.abs(v);
  return v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

// rate writes a figure per second.
export function rate(v) {
  if (!known(v)) return NONE;
  if (v === 0) return '0';
  if (v < 10) return v.toFixed(1);
  return count(v);
}

// percent writes a share of 1.
export function percent(v) {
  if (!known(v)) return NONE;
  const p = v * 100;
  if ((p > 0 && p < 0.95) || (p > 99 && p < 100)) return (p < 1 ? Math.max(p, 0.1) : Math.min(p, 99.9)).toFixed(1) + ' %';
  return Math.round(p) + ' %';
}

// seconds writes a time that a request takes.
export function seconds(v) {
  if (!known(v)) return NONE;
  if (v === 0) return '0';
  if (v < 0.0009995) return fixed(v * 1e6) + ' µs';
  if (v < 0.9995) return fixed(v * 1e3) + ' ms';
  if (v < 100) return fixed(v) + ' s';
  return age(v);
}

// age writes a long time in two units.
export function age(v) {
  if (!known(v)) return NONE;
  const t = Math.max(0, Math.floor(v));
  if (t < 60) return t + ' s';
  if (t < 3600) return Math.floor(t / 60) + ' min ' + (t % 60) + ' s';
  if (t < 86400) return Math.floor(t / 3600) + ' h ' + Math.floor((t % 3600) / 60) + ' min';
  return Math.floor(t / 86400) + ' d ' + Math.floor((t % 86400) / 3600) + ' h';
}

export function bytes(v) {
  if (!known(v)) return NONE;
  if (v >= 2 ** 30) return fixed(v / 2 ** 30) + ' GiB';
  if (v >= 2 ** 20) return fixed(v / 2 ** 20) + ' MiB';
  return count(v) + ' B';
}

export function hertz(v) { return known(v) ? fixed(v / 1e9) + ' GHz' : NONE; }
export function watts(v) { return known(v) ? Math.round(v) + ' W' : NONE; }
export function celsius(v) { return known(v) ? Math.round(v) + ' °C' : NONE; }

const two = (n) => String(n).padStart(2, '0');

// clock writes the local time of day.
export function clock(ms, withMillis) {
  const d = new Date(ms);
  if (!Number.isFinite(d.getTime())) return NONE;
  const t = two(d.getHours()) + ':' + two(d.getMinutes()) + ':' + two(d.getSeconds());
  return withMillis ? t + '.' + String(d.getMilliseconds()).padStart(3, '0') : t;
}

// ago writes how long before now a moment was, as on a time axis.
export function ago(ms) {
  const t = Math.max(0, Math.round(ms / 1000));
  return '−' + Math.floor(t / 60) + ':' + two(t % 60);
}
