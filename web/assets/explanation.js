// One decision as a table: what was weighed for each engine, and what came of it.
import { h } from './dom.js';
import { shape } from './marks.js';
import * as f from './format.js';

// The rows: name, what it is, how to write it; least says that the least is the
// best.
const TERMS = [
  ['Match used', 'Prompt tokens believed cached there, by the way that decided', (c) => f.whole(c.match_tokens), 'most', (c) => c.match_tokens],
  ['· exact', 'By the engine\'s own events', (c) => f.whole(c.match_exact_tokens)],
  ['· approximate', 'By earlier answers', (c) => f.whole(c.match_approximate_tokens)],
  ['· being computed', 'Of a prefill that was in flight there', (c) => f.whole(c.match_in_flight_tokens)],
  ['To compute', 'Prompt tokens that are not cached', (c) => f.whole(c.uncached_tokens)],
  ['Queue', 'Prompt tokens to be computed before it', (c) => f.whole(c.queue_tokens)],
  ['Requests in prefill', 'Without a first token', (c) => f.whole(c.prefill_requests)],
  ['Requests in decode', 'Past their first token', (c) => f.whole(c.decode_requests)],
  ['Prefill rate', 'Prompt tokens per second, as learnt', (c) => f.whole(c.prefill_tokens_per_s) + '/s'],
  ['Time per token', 'At the batch that it would make', (c) => f.seconds(c.seconds_per_token)],
  ['Wait', 'For what is queued', (c) => f.seconds(c.wait_s), 'least', (c) => c.wait_s],
  ['Prefill', 'For what is to be computed', (c) => f.seconds(c.prefill_s), 'least', (c) => c.prefill_s],
  ['Decode', 'For the expected answer', (c) => f.seconds(c.decode_s), 'least', (c) => c.decode_s],
  ['Delay of others', 'Caused to the requests there', (c) => f.seconds(c.delay_s)],
  ['Cost', 'Wait + prefill + a quarter of decode + the price of tokens computed again', (c) => f.seconds(c.cost_s), 'least', (c) => c.cost_s],
];

const SENTENCES = {
  'exact': 'more of the prompt is known to be cached there',
  'approximate': 'more of the prompt should be cached there, by earlier answers',
  'single-flight': 'the same prefix was being computed there',
  'load': 'the wait there was shorter',
  'profile': 'its decoding profile suits the expected length of the answer',
  'session': 'the session lives there',
  'stored-response': 'it made the response that is continued',
  'rotation': 'all was equal, and it was its turn',
  'only-one': 'no other engine was usable',
  'fail-open': 'no engine was usable, and this one accepts connections',
};

// explanation makes the whole of it.
export function explanation(x) {
  const candidates = x.candidates || [];
  return h('div', { class: 'explanation' }, sentence(x), facts(x), result(x), candidates.length ? table(x, candidates) : null);
}

function sentence(x) {
  if (!x.engine) return h('p', { class: 'lead' }, 'No engine was chosen.');
  const margin = x.runner_up && typeof x.margin_s === 'number' ? ', by ' + f.seconds(x.margin_s) + ' over ' : '';
  return h('p', { class: 'lead' }, h('b', {}, x.engine), ': ', SENTENCES[x.reason] || x.reason, margin, margin ? h('b', {}, x.runner_up) : '', '.');
}

function facts(x) {
  const tokens = x.prompt_tokens === null ? 'length not known' : f.whole(x.prompt_tokens) + ' tokens';
  const shadow = x.shadow ? x.shadow.agreement + (x.shadow.engine ? ': ' + x.shadow.engine + (x.shadow.reason ? ' (' + x.shadow.reason + ')' : '') : '') : 'not asked';
  const rows = [
    ['Reason', x.reason], ['Keys', x.keys + (x.keys_note ? ': ' + x.keys_note : '')], ['Prompt', tokens],
    ['Answer', (x.output_cap === null ? 'no cap' : 'cap ' + f.whole(x.output_cap)) + ', ' + (x.expected_output_tokens === null ? 'none' : f.whole(x.expected_output_tokens)) + ' expected'],
    ['Other way of matching', shadow], ['Ids handed over', x.handoff ? 'yes' : 'no'], ['Policy', x.policy + (x.cohort ? ', exact for ' + f.percent(x.cohort.percent / 100) + ' of sessions, this one ' + (x.cohort.in ? 'in' : 'out') : '')],
    ['Given up', f.whole(x.forgone_tokens) + ' cached tokens'], ['Model', x.model || 'the engines\' own'], ['Path', x.path], ['Stream', x.stream ? 'yes' : 'no'], ['Session', x.session || f.NONE],
  ];
  return h('dl', { class: 'facts wide' }, rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value === null || value === undefined ? f.NONE : value))));
}

function result(x) {
  if (!x.result) return null;
  const r = x.result;
  const tries = (x.attempts || []).map((a) => a.engine + ' ' + a.outcome).join(', then ');
  const rows = [['End', r.end], ['Status', String(r.status)], ['Attempts', tries || f.NONE], ['Prompt', f.whole(r.prompt_tokens)], ['Cached, reported', f.whole(r.cached_tokens)], ['Output', f.whole(r.output_tokens)],
    ['Route', f.seconds(r.route_s)], ['First token', f.seconds(r.ttft_s)], ['Whole', f.seconds(r.duration_s)]];
  return h('dl', { class: 'facts wide result', 'data-end': r.end }, rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

function table(x, candidates) {
  const chosen = (c) => c.engine === x.engine;
  const rank = (c) => (chosen(c) ? 0 : c.engine === x.runner_up ? 1 : 2);
  const all = [...candidates].sort((a, b) => rank(a) - rank(b) || (a.cost_s ?? Infinity) - (b.cost_s ?? Infinity));
  const place = (c) => (chosen(c) ? 'chosen' : c.engine === x.runner_up ? 'runner-up' : c.usable ? '' : 'not usable');
  const head = h('tr', {}, h('th', { scope: 'col' }, 'Engine'), all.map((c) => h('th', { scope: 'col', class: 'num', 'data-chosen': chosen(c) ? 'yes' : null }, h('span', { class: 'place' }, place(c)), c.engine)));
  const words = (name, draw) => h('tr', {}, h('th', { scope: 'row' }, name), all.map((c) => h('td', { class: 'num', 'data-chosen': chosen(c) ? 'yes' : null }, draw(c))));
  const withShape = (word, kind) => h('span', { class: 'mark ' + kind, 'data-word': word }, shape(word), h('span', { class: 'word' }, word));
  const rows = [
    words('Profile', (c) => c.profile || 'none'), words('State', (c) => withShape(c.state, 'state')), words('Trust', (c) => withShape(c.trust, 'trust')),
    all.some((c) => c.note) ? words('Note', (c) => c.note || f.NONE) : null,
    ...TERMS.map(([name, why, write, best, key]) => {
      const values = best ? all.map(key).filter((v) => typeof v === 'number') : [];
      const top = values.length > 1 ? (best === 'least' ? Math.min(...values) : Math.max(...values)) : null;
      const differs = values.some((v) => v !== top);
      return h('tr', { class: name === 'Cost' ? 'total' : null }, h('th', { scope: 'row', title: why }, name),
        all.map((c) => h('td', { class: 'num', 'data-chosen': chosen(c) ? 'yes' : null, 'data-best': differs && key && key(c) === top ? 'yes' : null }, write(c))));
    }),
  ];
  return h('div', { class: 'scroll' }, h('table', { class: 'data candidates' }, h('caption', {}, 'What was weighed', h('small', {}, 'underlined: the best of its row')), h('thead', {}, head), h('tbody', {}, rows)));
}
