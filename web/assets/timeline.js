// How the engines' states changed: a lane for each engine that changed, and the
// changes in words.
import { h, text, attr, style, list } from './dom.js';
import { store } from './store.js';
import { shape } from './marks.js';
import * as f from './format.js';

const SPANS = [10, 60, 360, 1440]; // minutes
const LANES = 12;
const ROWS = 30;

export function timeline() {
  const lanes = h('div', { class: 'lanes' });
  const axis = h('div', { class: 'axis', 'aria-hidden': 'true' });
  const rows = h('tbody', {});
  const quiet = h('p', { class: 'note' });
  const pick = h('div', { class: 'pick', role: 'group', 'aria-label': 'Span of the time line' });
  let minutes = SPANS[0];
  const buttons = SPANS.map((m) => h('button', { type: 'button', onclick: () => { minutes = m; if (store.topology) set(store.topology); } }, m < 60 ? m + ' min' : m / 60 + ' h'));
  pick.append(...buttons);
  const tableSide = h('div', { class: 'table-side' }, h('table', { class: 'data' }, h('thead', {}, h('tr', {}, ['Time', 'Engine', 'From', 'To', 'Reason'].map((c) => h('th', { scope: 'col' }, c)))), rows));
  const node = h('section', { class: 'changes' },
    h('div', { class: 'head' }, h('h2', { class: 'section' }, 'Changes of state'), pick),
    h('div', { class: 'change-columns' },
      h('div', { class: 'lane-side', 'aria-hidden': 'true' }, lanes, axis),
      tableSide),
    quiet);

  function set(t) {
    const now = store.now();
    const from = now - minutes * 60000;
    SPANS.forEach((m, i) => attr(buttons[i], 'aria-pressed', m === minutes ? 'true' : 'false'));
    const changes = t.transitions.map((x) => ({ ...x, at: Date.parse(x.time) }));
    const byEngine = new Map();
    for (const c of changes) {
      if (!byEngine.has(c.engine)) byEngine.set(c.engine, []);
      byEngine.get(c.engine).push(c);
    }
    const present = t.engines.filter((e) => byEngine.has(e.name) || t.engines.length <= LANES);
    present.sort((a, b) => last(byEngine, b) - last(byEngine, a) || (a.name < b.name ? -1 : 1));
    list(lanes, present.slice(0, LANES), (e) => e.name, lane, (entry, e) => entry.set(pieces(e, byEngine.get(e.name) || [], Math.max(from, Date.parse(t.start_time)), now), from, now));
    ticks(axis, minutes);
    const newest = changes.slice(-ROWS).reverse();
    list(rows, newest, (c) => c.time + c.engine + c.to, row, (entry, c) => text(entry.age, f.clock(c.at)));
    tableSide.hidden = !changes.length;
    attr(node, 'data-quiet', changes.length ? null : 'yes');
    const left = present.length - LANES;
    text(quiet, !changes.length ? 'No state changed since the start.' : left > 0 ? left + ' more engines changed earlier.' : '');
  }
  return { node, set };
}

const last = (byEngine, e) => (byEngine.has(e.name) ? byEngine.get(e.name)[byEngine.get(e.name).length - 1].at : 0);

// pieces are the states that an engine was in, as far as they are known.
function pieces(e, changes, from, now) {
  const out = [];
  let end = now;
  for (let i = changes.length - 1; i >= 0 && end > from; i--) {
    out.unshift({ state: changes[i].to, from: Math.max(changes[i].at, from), to: end, reason: changes[i].reason });
    end = changes[i].at;
  }
  if (end > from) {
    const since = changes.length ? from : Math.max(Date.parse(e.state_since), from);
    out.unshift({ state: changes.length ? changes[0].from : e.state, from: since, to: end, reason: '' });
  }
  return out.filter((p) => p.to > p.from);
}

function lane(engine) {
  const track = h('div', { class: 'lane-track' });
  const node = h('div', { class: 'lane' }, h('span', { class: 'lane-name' }, engine.name), track);
  return {
    node,
    set(all, from, now) {
      while (track.children.length > all.length) track.lastChild.remove();
      while (track.children.length < all.length) track.append(h('span', { class: 'state-piece' }, h('span', { class: 'word' })));
      const scale = 100 / (now - from);
      all.forEach((p, i) => {
        const piece = track.children[i];
        attr(piece, 'data-word', p.state);
        attr(piece, 'title', p.state + ' ' + f.clock(p.from) + ' – ' + f.clock(p.to) + (p.reason ? '\n' + p.reason : ''));
        style(piece, 'left', ((p.from - from) * scale).toFixed(2) + '%');
        style(piece, 'width', ((p.to - p.from) * scale).toFixed(2) + '%');
        text(piece.firstChild, (p.to - p.from) * scale > 8 ? p.state : '');
      });
    },
  };
}

function row(c) {
  const word = (w) => h('td', {}, h('span', { class: 'mark state', 'data-word': w }, shape(w), h('span', { class: 'word' }, w)));
  const age = h('td', { class: 'num', title: c.time });
  return { node: h('tr', {}, age, h('td', { class: 'name' }, c.engine), word(c.from), word(c.to), h('td', { class: 'reason', title: c.reason }, c.reason)), age };
}

function ticks(axis, minutes) {
  const steps = 5;
  while (axis.children.length < steps + 1) axis.append(h('span', {}));
  for (let i = 0; i <= steps; i++) {
    const m = minutes * (1 - i / steps);
    text(axis.children[i], m === 0 ? 'now' : m < 90 ? '−' + Math.round(m) + ' min' : '−' + (m / 60).toFixed(1) + ' h');
  }
}
