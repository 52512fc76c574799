// All engines as a table: for screen readers, and for who compares many.
import { h, text, attr, list } from './dom.js';
import { store } from './store.js';
import { mark, STATES } from './marks.js';
import * as f from './format.js';

const order = (word) => STATES.length - STATES.indexOf(word);

// A column: title, text, what to sort by.
const COLUMNS = [
  ['Engine', (e) => e.name, (e) => e.name],
  ['Profile', (e) => e.profile, (e) => e.profile],
  ['State', null, (e) => order(e.state)],
  ['For', (e) => f.age(store.age(e.state_since)), (e) => store.age(e.state_since)],
  ['Reason', (e) => e.state_reason, (e) => e.state_reason],
  ['Trust', null, (e) => e.trust],
  ['Prefill', (e) => f.whole(e.leases && e.leases.prefill), (e) => (e.leases ? e.leases.prefill : -1)],
  ['Decode', (e) => f.whole(e.leases && e.leases.decode), (e) => (e.leases ? e.leases.decode : -1)],
  ['Queue, tokens', (e) => f.count(e.queue_tokens), (e) => e.queue_tokens],
  ['KV used', (e) => f.percent(e.reported && e.reported.kv_usage), (e) => (e.reported ? e.reported.kv_usage : -1)],
  ['Match predicted', (e) => f.percent(e.match_share), (e) => e.match_share],
  ['Match reported', (e) => f.percent(e.cached_share), (e) => e.cached_share],
  ['First token p50', (e) => f.seconds(e.ttft_p50_s), (e) => e.ttft_p50_s],
  ['p99', (e) => f.seconds(e.ttft_p99_s), (e) => e.ttft_p99_s],
  ['Per token', (e) => f.seconds(e.tpot_p50_s), (e) => e.tpot_p50_s],
  ['Requests/s', (e) => f.rate(e.rates && e.rates.requests_per_s), (e) => (e.rates ? e.rates.requests_per_s : -1)],
  ['Output tokens/s', (e) => f.rate(e.rates && e.rates.output_tokens_per_s), (e) => (e.rates ? e.rates.output_tokens_per_s : -1)],
];
const LEFT = new Set(['Engine', 'Profile', 'State', 'Reason', 'Trust']);

export function engineTable() {
  let by = -1;
  let down = true;
  const heads = COLUMNS.map(([title], i) => h('th', { scope: 'col', class: LEFT.has(title) ? null : 'num' },
    h('button', { type: 'button', class: 'sort', onclick: () => { down = by === i ? !down : true; by = i; if (store.topology) set(store.topology); } }, title)));
  const body = h('tbody', {});
  const caption = h('caption', { class: 'hidden' }, 'All engines; a column\'s button sorts by it');
  const table = h('table', { class: 'data engine-table' }, caption, h('thead', {}, h('tr', {}, heads)), body);
  const node = h('details', { class: 'as-table', ontoggle: () => { if (store.topology) set(store.topology); } }, h('summary', {}, 'All engines as a table'), h('div', { class: 'scroll' }, table));

  function row() {
    const state = mark('state');
    const trust = mark('trust');
    const cells = COLUMNS.map(([title], i) => h(i === 0 ? 'th' : 'td', { scope: i === 0 ? 'row' : null, class: LEFT.has(title) ? (title === 'Reason' ? 'reason' : 'name') : 'num' }, title === 'State' ? state.node : title === 'Trust' ? trust.node : null));
    return { node: h('tr', {}, cells), cells, state, trust };
  }

  function set(t) {
    if (!node.open) return;
    heads.forEach((th, i) => attr(th, 'aria-sort', i === by ? (down ? 'descending' : 'ascending') : null));
    const engines = [...t.engines];
    if (by >= 0) {
      const key = COLUMNS[by][2];
      engines.sort((a, b) => {
        const x = key(a) ?? -1;
        const y = key(b) ?? -1;
        return (x < y ? 1 : x > y ? -1 : 0) * (down ? 1 : -1);
      });
    }
    list(body, engines, (e) => e.name, row, (entry, e) => {
      entry.state.set(e.state);
      entry.trust.set(e.trust || 'blind', e.trust_reason);
      COLUMNS.forEach(([, show], i) => { if (show) text(entry.cells[i], show(e) ?? f.NONE); });
      attr(entry.cells[4], 'title', e.state_reason);
    });
  }
  return { node, set };
}
