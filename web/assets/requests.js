// The last decisions. A row opens its explanation.
import { h, text, attr, list, replace } from './dom.js';
import { store } from './store.js';
import { explanation } from './explanation.js';
import * as f from './format.js';

const REASONS = ['exact', 'approximate', 'single-flight', 'load', 'profile', 'session', 'stored-response', 'rotation', 'only-one', 'fail-open'];
const ENDS = ['done', 'client-gone-waiting', 'client-gone-streaming', 'client-stalled', 'rejected', 'shed', 'timed-out', 'engine-unreachable',
  'engine-error', 'engine-died', 'engine-stalled', 'engine-bad-response', 'drained', 'internal'];

const ROWS = 100;

const winner = (x) => (x.candidates || []).find((c) => c.engine === x.engine);
const result = (x) => x.result || {};
const keyOf = (x) => x.request_id + ' ' + x.time + ' ' + result(x).duration_s;

// A column: title, class, text.
const COLUMNS = [
  ['Time', 'num', (x) => f.clock(Date.parse(x.time), true)],
  ['Request', 'id', (x) => x.request_id],
  ['Engine', 'name', (x) => x.engine],
  ['Reason', 'name', (x) => x.reason],
  ['Keys', 'name', (x) => x.keys],
  ['Prompt', 'num', (x) => f.whole(result(x).prompt_tokens ?? x.prompt_tokens)],
  ['Match', 'num', (x) => f.whole(winner(x) ? winner(x).match_tokens : null)],
  ['Cached', 'num', (x) => f.whole(result(x).cached_tokens)],
  ['Output', 'num', (x) => f.whole(result(x).output_tokens)],
  ['First token', 'num', (x) => f.seconds(result(x).ttft_s)],
  ['Whole', 'num', (x) => f.seconds(result(x).duration_s)],
  ['End', 'end', (x) => result(x).end],
];

export function requestsView() {
  const pick = (label, words) => h('select', { 'aria-label': label }, h('option', { value: '' }, label), words.map((w) => h('option', { value: w }, w)));
  const engine = pick('Engine', []);
  const reason = pick('Reason', REASONS);
  const end = pick('End', ENDS);
  const find = h('input', { type: 'search', placeholder: 'Request or session', 'aria-label': 'Filter by request id or session' });
  const hold = h('button', { type: 'button', 'aria-pressed': 'false', title: 'Hold the list (p)' }, 'Hold');
  const count = h('span', { class: 'note', role: 'status' });
  const body = h('tbody', {});
  const table = h('table', { class: 'data requests-table' },
    h('caption', { class: 'hidden' }, 'The last decisions, the newest first; Enter opens one'),
    h('thead', {}, h('tr', {}, COLUMNS.map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)))), body);
  const none = h('p', { class: 'empty' }, 'No request yet.');
  const close = h('button', { type: 'button', class: 'close', 'aria-label': 'Close the explanation' }, '✕');
  const title = h('h2', {});
  const inside = h('div', {});
  const aside = h('aside', { class: 'detail', 'aria-label': 'Explanation', hidden: true }, h('header', {}, title, close), inside);
  const node = h('div', { class: 'view requests' },
    h('div', { class: 'filters' }, engine, reason, end, find, hold, count),
    h('div', { class: 'split' }, h('div', { class: 'scroll rows' }, table, none), aside));

  let wanted = ''; // the engine to filter by, which may not be known yet
  let room = ROWS; // how many rows are made; scrolling down makes more
  let held = null; // the list as it was when it was held
  let open = null;
  let shown = [];

  function update(what) {
    if (what.some((w) => ['topology', 'restart'].includes(w))) names();
    if (what.some((w) => ['decisions', 'topology', 'restart', 'filter'].includes(w))) draw();
  }

  function names() {
    const t = store.topology;
    if (!t) return;
    const have = [...engine.options].slice(1).map((o) => o.value).join('\n');
    const want = t.engines.map((e) => e.name);
    if (have === want.join('\n')) return;
    replace(engine, engine.options[0], want.map((w) => h('option', { value: w }, w)));
    engine.value = want.includes(wanted) ? wanted : '';
  }

  function admits(x) {
    const text = find.value.trim().toLowerCase();
    return (!engine.value || x.engine === engine.value) && (!reason.value || x.reason === reason.value) && (!end.value || result(x).end === end.value) &&
      (!text || String(x.request_id).toLowerCase().includes(text) || String(x.session).toLowerCase().includes(text));
  }

  function draw() {
    const all = held || store.decisions;
    shown = all.filter(admits);
    list(body, shown.slice(0, room), keyOf, row, (entry) => attr(entry.node, 'aria-selected', open === entry.key ? 'true' : null));
    none.hidden = shown.length > 0;
    text(none, all.length ? 'No request matches.' : 'No request yet.');
    text(count, shown.length + ' of the last ' + all.length + (held ? ', held; ' + (store.seen - heldAt) + ' more came' : ''));
  }

  function row(x) {
    const made = h('tr', { tabindex: -1, 'data-end': result(x).end }, COLUMNS.map(([name, kind, write]) => {
      const value = write(x) ?? f.NONE;
      if (name === 'Request') return h('td', { class: kind }, h('button', { type: 'button', class: 'link', title: value }, value));
      return h('td', { class: kind }, value);
    }));
    const key = keyOf(x);
    made.addEventListener('click', () => show(x));
    made.addEventListener('focusin', () => { at = key; });
    return { node: made, key, x };
  }

  const rows = node.querySelector('.rows');
  rows.addEventListener('scroll', () => {
    const below = rows.scrollHeight - rows.scrollTop - rows.clientHeight;
    if (below > 400 || room >= shown.length) return;
    room += ROWS;
    draw();
  }, { passive: true });

  // ---- the explanation ----

  async function show(x) {
    open = keyOf(x);
    aside.hidden = false;
    attr(node, 'data-open', 'yes');
    text(title, x.request_id);
    replace(inside, explanation(x));
    draw();
    if ((x.candidates || []).length > 2) return;
    const whole = await ask(x); // lists carry only the first two of many engines
    if (whole && open === keyOf(x)) replace(inside, explanation(whole));
  }

  async function ask(x) {
    try {
      const answer = await fetch('api/v1/explain/' + encodeURIComponent(x.request_id));
      const found = answer.ok ? await answer.json() : null;
      return found && found.time === x.time ? found : null;
    } catch {
      return null;
    }
  }

  function hide() {
    if (aside.hidden) return false;
    const was = open;
    open = null;
    aside.hidden = true;
    attr(node, 'data-open', null);
    draw();
    focusRow(shown.findIndex((x) => keyOf(x) === was));
    return true;
  }

  // ---- keys ----

  let at = null;
  let heldAt = 0;

  function focusRow(i) {
    const x = shown[i];
    while (i >= room) {
      room += ROWS;
      draw();
    }
    const entry = x && body.listed.get(keyOf(x));
    if (!entry) return;
    entry.node.focus();
    entry.node.scrollIntoView({ block: 'nearest' });
  }

  function move(by) {
    const i = shown.findIndex((x) => keyOf(x) === at);
    const next = i < 0 ? 0 : Math.min(Math.max(i + by, 0), shown.length - 1);
    focusRow(next);
    if (!aside.hidden && shown[next]) show(shown[next]);
  }

  function toggleHold() {
    held = held ? null : store.decisions.slice();
    heldAt = store.seen;
    attr(hold, 'aria-pressed', held ? 'true' : 'false');
    text(hold, held ? 'Go on' : 'Hold');
    draw();
  }

  for (const control of [engine, reason, end]) control.addEventListener('change', remember);
  find.addEventListener('input', () => draw());
  hold.addEventListener('click', toggleHold);
  close.addEventListener('click', hide);

  // remember puts the filter into the address, so that a link leads to it.
  function remember() {
    wanted = engine.value;
    const q = new URLSearchParams();
    for (const [name, control] of [['engine', engine], ['reason', reason], ['end', end]]) if (control.value) q.set(name, control.value);
    window.history.replaceState(null, '', '#/requests' + (q.size ? '?' + q : ''));
    draw();
  }

  return {
    node,
    update,
    show() { names(); draw(); },
    parameters(q) {
      wanted = q.get('engine') || '';
      names();
      for (const [name, control] of [['engine', engine], ['reason', reason], ['end', end]]) control.value = q.get(name) || '';
      draw();
    },
    key(e) {
      if (e.key === '/') find.focus();
      else if (e.key === 'p') toggleHold();
      else if (e.key === 'j' || (e.key === 'ArrowDown' && at)) move(1);
      else if (e.key === 'k' || (e.key === 'ArrowUp' && at)) move(-1);
      else if (e.key === 'Escape') return hide();
      else if (e.key === 'Enter' && e.target.tagName === 'TR') {
        const x = shown.find((one) => keyOf(one) === at);
        if (x) show(x);
      } else return false;
      return true;
    },
  };
}
