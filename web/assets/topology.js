// The serving system as one picture: clients, Ramjet, engines; below it what
// was decided lately, what that cost, and how states changed.
import { h, s, text, attr, style, list, replace } from './dom.js';
import { store } from './store.js';
import { card, tile, weight } from './card.js';
import { timeline } from './timeline.js';
import { engineTable } from './table.js';
import { panels } from './panels.js';
import * as f from './format.js';

const MANY = 12; // engines beyond which cards become tiles
const BATCH = 40;

function figures(rows) {
  const values = rows.map(() => h('dd', {}));
  return { node: h('dl', { class: 'facts' }, rows.map((name, i) => [h('dt', {}, name), values[i]])), set: (all) => all.forEach((v, i) => text(values[i], v)) };
}

export function topologyView() {
  const clients = figures(['in flight', 'requests/s', 'prompt tokens/s', 'output tokens/s']);
  const self = figures(['policy', 'exact', 'prompt cached', 'uptime', 'models']);
  const engines = h('div', { class: 'engines', role: 'list', 'aria-label': 'Engines' });
  const lines = s('svg', { class: 'flows', 'aria-hidden': 'true' });
  const filter = h('input', { type: 'search', placeholder: 'Filter engines', 'aria-label': 'Filter engines by name, state, trust or profile', class: 'engine-filter', hidden: true });
  const box = (name, title, node) => h('section', { class: 'box ' + name, 'aria-label': title }, h('h2', {}, title), node);
  const clientBox = box('clients', 'Clients', clients.node);
  const selfBox = box('self', 'Ramjet', self.node);
  const system = h('div', { class: 'system' }, lines, clientBox, selfBox, h('div', { class: 'engine-side' }, filter, engines));
  const below = panels();
  const changes = timeline();
  const table = engineTable();
  const empty = h('p', { class: 'empty' }, 'Waiting for Ramjet…');
  const node = h('div', { class: 'view topology' }, empty, system, below.node, changes.node, table.node);
  system.hidden = below.node.hidden = changes.node.hidden = table.node.hidden = true;

  let entries = new Map();
  let asTiles = false;
  let paths = [];
  let made = BATCH; // how many engines are drawn; a frame adds as many, so that none takes long
  let placed = ''; // the engines that there are lines for

  function shown(t) {
    const want = filter.value.trim().toLowerCase();
    if (!want) return t.engines;
    return t.engines.filter((e) => [e.name, e.state, e.trust, e.profile].some((v) => String(v).toLowerCase().includes(want)));
  }

  function update(what) {
    const t = store.topology;
    if (!t) return;
    if (empty.isConnected) {
      empty.remove();
      system.hidden = below.node.hidden = changes.node.hidden = table.node.hidden = false;
    }
    if (what.includes('topology')) setAll(t);
    const now = store.now();
    if (!asTiles && what.some((w) => ['gpu', 'theme', 'canvas'].includes(w))) {
      for (const e of t.engines) entries.get(e.name)?.draw(e, now);
    }
    if (what.includes('size')) place(t);
  }

  function setAll(t) {
    const many = t.engines.length > MANY;
    if (many !== asTiles) {
      asTiles = many;
      engines.listed = undefined;
      replace(engines);
    }
    filter.hidden = !many;
    attr(engines, 'data-form', many ? 'tiles' : 'cards');
    const total = t.engines.reduce((a, e) => a + weight(e), 0);
    const part = (e) => (total > 0 ? weight(e) / total : 0);
    const make = (e) => {
      const entry = many ? tile(e) : card(e);
      attr(entry.node, 'role', 'listitem');
      return entry;
    };
    const wanted = shown(t);
    entries = list(engines, wanted.slice(0, made), (e) => e.name, make, (entry, e) => entry.set(e, part(e)));
    const traffic = t.traffic || {};
    clients.set([f.whole(traffic.in_flight), f.rate(traffic.requests_per_s), f.rate(traffic.prompt_tokens_per_s), f.rate(traffic.output_tokens_per_s)]);
    const exact = t.exact ? (t.exact.mode === 'percent' ? f.percent(t.exact.percent / 100) + ' of sessions' : t.exact.mode) : f.NONE;
    const cached = t.lately && t.lately.prompt_tokens ? t.lately.cached_tokens / t.lately.prompt_tokens : null;
    self.set([t.policy || f.NONE, exact, f.percent(cached), f.age(t.uptime_s), (t.models || []).join(', ') || 'none known yet']);
    below.set(t);
    changes.set(t);
    table.set(t);
    if (made < wanted.length) {
      made += BATCH;
      requestAnimationFrame(() => update(['topology']));
    }
    const names = [...entries.keys()].join('\n');
    if (names !== placed || !paths.length) {
      placed = names;
      place(t);
    } else weigh(t, total);
  }

  // place draws a line from box to box; only a change of layout moves them.
  function place(t) {
    const frame = system.getBoundingClientRect();
    if (!frame.width) return;
    attr(lines, 'viewBox', '0 0 ' + frame.width.toFixed(0) + ' ' + frame.height.toFixed(0));
    attr(lines, 'width', frame.width.toFixed(0));
    attr(lines, 'height', frame.height.toFixed(0));
    const side = (node, right) => {
      const r = node.getBoundingClientRect();
      return [(right ? r.right : r.left) - frame.left, r.top - frame.top + Math.min(r.height / 2, 58)];
    };
    paths = [[null, curve(side(clientBox, true), side(selfBox, false))]];
    const from = side(selfBox, true);
    const cards = [...entries].map(([name, e]) => [name, e.node]);
    const left = cards.length ? cards[0][1].offsetLeft : 0;
    const oneColumn = !asTiles && cards.every(([, n]) => n.offsetLeft === left);
    if (oneColumn && left > from[0]) for (const [name, n] of cards) paths.push([name, curve(from, side(n, false))]);
    else if (cards.length && left > from[0]) paths.push([null, curve(from, [left, from[1]])]);
    replace(lines, paths.map(([name, d]) => s('g', { 'data-engine': name }, s('path', { class: 'pipe', d }), s('path', { class: 'stream', d }))));
    weigh(t, t.engines.reduce((a, e) => a + weight(e), 0));
  }

  // weigh gives each line the width of its share.
  function weigh(t, total) {
    const byName = new Map(t.engines.map((e) => [e.name, e]));
    paths.forEach(([name], i) => {
      const e = name && byName.get(name);
      const share = name ? (total > 0 && e ? weight(e) / total : 0) : total > 0 ? 1 : 0;
      const [pipe, stream] = lines.children[i].children;
      const width = (1.5 + 12.5 * share).toFixed(1);
      style(pipe, 'stroke-width', width);
      attr(lines.children[i], 'data-flows', share > 0 ? 'yes' : 'no');
      attr(lines.children[i], 'data-state', e ? e.state : null);
    });
  }

  filter.addEventListener('input', () => update(['topology']));
  return {
    node,
    update,
    show() { paths = []; update(['topology', 'gpu', 'size']); },
    key(e) {
      if (e.key !== '/' || filter.hidden) return false;
      filter.focus();
      return true;
    },
  };
}

// curve leaves and arrives level.
function curve([x1, y1], [x2, y2]) {
  const mid = (x1 + x2) / 2;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${mid.toFixed(1)} ${y1.toFixed(1)} ${mid.toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}
