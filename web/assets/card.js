// One engine as a card, and as a tile where there are many.
import { h, text, attr, style } from './dom.js';
import { store } from './store.js';
import { mark, STATE_WORDS, TRUST_WORDS } from './marks.js';
import { spark } from './chart.js';
import * as f from './format.js';

const sum = (list) => list.reduce((a, b) => a + b, 0);

// bar is a share of a whole: a drawn bar with its figure beside it.
function bar(kind) {
  const fill = h('span', { class: 'fill' });
  const value = h('span', { class: 'value' });
  const label = h('span', { class: 'bar-label' });
  const node = h('div', { class: 'bar-row ' + kind }, label, h('span', { class: 'track' }, fill), value);
  return {
    node,
    set(name, share) {
      text(label, name);
      style(fill, 'width', (Number.isFinite(share) && share !== null ? Math.min(Math.max(share, 0), 1) * 100 : 0).toFixed(1) + '%');
      text(value, f.percent(share));
    },
  };
}

// cell is a label, a figure and what explains it.
function cell(label, title) {
  const value = h('div', { class: 'figure' });
  const note = h('div', { class: 'note' });
  const node = h('div', { class: 'cell', title }, h('div', { class: 'label' }, label), value, note);
  return { node, set(v, n) { text(value, v); text(note, n); } };
}

// card makes an engine's card.
export function card(engine) {
  const state = mark('state');
  const trust = mark('trust');
  const name = h('h3', {}, engine.name);
  const profile = h('span', { class: 'chip' });
  const since = h('span', { class: 'since' });
  const reason = h('span', { class: 'reason' });
  const trustReason = h('span', { class: 'reason' });
  const requests = cell('Requests', 'Leases on this engine: before and after their first generated token');
  const queue = cell('Queue', 'Prompt tokens still to be computed for requests without a first token');
  const ttft = cell('First token', 'From sending a request to its first generated token, last minute');
  const tpot = cell('Per token', 'Mean time per generated token after the first, last minute');
  const own = cell('Engine says', 'What its own /metrics page said');
  const flow = cell('Flow', 'Requests and tokens per second, last ten seconds');
  const kv = bar('kv');
  const predicted = bar('predicted');
  const reported = bar('reported');
  const kvNote = h('div', { class: 'note' });
  const matchNote = h('div', { class: 'note' });
  const gpus = h('div', { class: 'gpus' });
  const canvas = h('canvas', { class: 'spark', role: 'img', 'aria-label': 'no tokens seen' });
  const more = h('dl', { class: 'more' });
  const node = h('article', { class: 'card', 'data-engine': engine.name },
    h('header', {}, name, profile),
    h('div', { class: 'whys' },
      h('p', { class: 'why' }, state.node, since, reason),
      h('p', { class: 'why' }, trust.node, trustReason)),
    h('div', { class: 'figures' },
      requests.node, queue.node, ttft.node, tpot.node, flow.node, own.node,
      h('div', { class: 'cell wide', title: 'The engine\'s KV cache, as it reports it' }, h('div', { class: 'label' }, 'KV cache'), kv.node, kvNote),
      h('div', { class: 'cell wide', title: 'Share of the prompt tokens that were cached here, last minute: believed when the engine was chosen, and reported by the engine afterwards' },
        h('div', { class: 'label' }, 'Prompt tokens cached'), predicted.node, reported.node, matchNote)),
    h('div', { class: 'sparks' }, canvas, h('div', { class: 'spark-key' }, h('span', { class: 'key prefill' }, 'prefill'), h('span', { class: 'key decode' }, 'decode'), h('span', {}, 'last 2 min'))),
    h('div', { class: 'foot' }, gpus, h('details', {}, h('summary', {}, 'More'), more)));
  const parts = { node, name, state, trust, profile, since, reason, trustReason, requests, queue, ttft, tpot, own, flow, kv, predicted, reported, kvNote, matchNote, gpus, canvas, more };
  return { node, set: (e) => setCard(parts, e), draw: (e, now) => drawSpark(canvas, e, now) };
}

function drawSpark(canvas, e, now) {
  const series = store.tokens.get(e.name);
  spark(canvas, series, now);
  const last = series ? series.t.length - 1 : -1;
  attr(canvas, 'aria-label', last < 0 ? 'no tokens seen' : 'Tokens per second: prefill ' + f.rate(series.columns.prefill[last]) + ', decode ' + f.rate(series.columns.decode[last]));
}

function setCard(p, e) {
  attr(p.node, 'data-state', e.state);
  p.state.set(e.state, STATE_WORDS[e.state]);
  text(p.profile, e.profile || 'none');
  attr(p.profile, 'title', 'Decoding profile');
  text(p.since, 'for ' + f.age(store.age(e.state_since)));
  text(p.reason, e.state_reason || '');
  p.trust.set(e.trust || 'blind', TRUST_WORDS[e.trust]);
  text(p.trustReason, e.trust_reason || '');

  const leases = e.leases || {};
  const running = (leases.prefill || 0) + (leases.decode || 0);
  p.requests.set(e.leases ? f.whole(running) : f.NONE, e.leases ? leases.prefill + ' prefill · ' + leases.decode + ' decode' : 'not known');
  const wait = e.queue_tokens && e.prefill_tokens_per_s ? e.queue_tokens / e.prefill_tokens_per_s : 0;
  p.queue.set(f.count(e.queue_tokens), wait ? 'tokens, ' + f.seconds(wait) : 'tokens');
  p.ttft.set(f.seconds(e.ttft_p50_s), 'p99 ' + f.seconds(e.ttft_p99_s));
  p.tpot.set(f.seconds(e.tpot_p50_s), e.tpot_p50_s ? f.rate(1 / e.tpot_p50_s) + ' tokens/s' : 'median');
  const rates = e.rates || {};
  p.flow.set(f.rate(rates.requests_per_s), 'requests/s · ' + f.rate(rates.output_tokens_per_s) + ' tok/s');
  setReported(p.own, e.reported);

  p.kv.set('used', e.reported ? e.reported.kv_usage : null);
  p.kv.node.classList.toggle('old', Boolean(e.reported) && e.reported.age_s > OLD);
  text(p.kvNote, (e.kv_capacity_tokens ? 'of ' + f.count(e.kv_capacity_tokens) + ' tokens · ' : '') + f.count(e.index_blocks) + ' blocks in the index');
  p.predicted.set('predicted', e.match_share);
  p.reported.set('reported', e.cached_share);
  text(p.matchNote, 'since the start ' + f.count(e.match_tokens_total) + ' predicted, ' + f.count(e.cached_tokens_total) + ' reported');
  setGPUs(p.gpus, e.gpus);
  setMore(p.more, e);
}

const OLD = 10; // seconds after which an engine's own figures are no longer of the moment

function setReported(own, r) {
  const isOld = Boolean(r) && r.age_s > OLD;
  own.node.classList.toggle('old', isOld);
  if (!r) own.set(f.NONE, 'nothing read');
  else own.set(f.whole(r.running) + ' + ' + f.whole(r.waiting), isOld ? f.age(r.age_s) + ' old' : 'running + waiting');
}

function setGPUs(node, gpus) {
  node.hidden = !gpus || !gpus.length;
  if (node.hidden) return;
  while (node.children.length > gpus.length) node.lastChild.remove();
  while (node.children.length < gpus.length) {
    node.append(h('span', { class: 'device-chip' }, h('span', {}), h('span', { class: 'track' }, h('span', { class: 'fill' })), h('span', { class: 'value' })));
  }
  gpus.forEach((g, i) => {
    const [name, track, value] = node.children[i].children;
    text(name, 'GPU ' + g.index);
    style(track.firstChild, 'width', ((g.utilization || 0) * 100).toFixed(0) + '%');
    text(value, f.percent(g.utilization) + ' · ' + f.watts(g.power_w));
    attr(node.children[i], 'title', [g.name, f.bytes(g.memory_used_bytes) + ' of ' + f.bytes(g.memory_total_bytes), f.celsius(g.temperature_c), 'throttle: ' + (g.throttle.join(', ') || 'none')].join('\n'));
    node.children[i].classList.toggle('old', g.age_s > Math.max(5, 3 * (g.interval_s || 0)));
  });
}

function setMore(dl, e) {
  if (!dl.parentNode.open && dl.firstChild) return;
  const perToken = Object.entries(e.seconds_per_token || {}).map(([n, v]) => [Number(n), v]).sort((a, b) => a[0] - b[0]);
  const rows = [
    ['Address', e.url || f.NONE],
    ['Models', (e.models || []).join(', ') || f.NONE],
    ['Lease tokens', f.whole(e.lease_tokens)],
    ['Prefill rate', f.count(e.prefill_tokens_per_s) + ' tokens/s'],
    ['Time per token, by batch', perToken.map(([n, v]) => n + ': ' + f.seconds(v)).join('   ') || 'not learnt yet'],
    ['Block', e.block_tokens ? e.block_tokens + ' tokens' : f.NONE],
    ['Blocks', f.whole(e.kv_blocks)],
    ['Own failures', f.rate(e.errors_per_s) + ' per second'],
    ['Computed though held elsewhere', e.totals ? f.count(e.totals.duplicate_prefill_tokens) + ' tokens' : f.NONE],
    ['Cached elsewhere and given up', e.totals ? f.count(e.totals.forgone_cached_tokens) + ' tokens' : f.NONE],
  ];
  while (dl.children.length < rows.length * 2) dl.append(h('dt', {}), h('dd', {}));
  rows.forEach(([name, value], i) => {
    text(dl.children[2 * i], name);
    text(dl.children[2 * i + 1], value);
  });
}

// tile is an engine in few words: for dozens of them.
export function tile(engine) {
  const state = mark('state');
  const trust = mark('trust small');
  const name = h('h3', {}, engine.name);
  const requests = h('span', { class: 'figure' });
  const flow = h('span', { class: 'note' });
  const kv = bar('kv');
  const match = bar('reported');
  const share = h('span', { class: 'share', 'aria-hidden': 'true' });
  const node = h('article', { class: 'tile', 'data-engine': engine.name },
    share,
    h('header', {}, name, state.node),
    h('div', { class: 'line' }, requests, flow),
    kv.node, match.node, h('div', { class: 'line' }, trust.node));
  return {
    node,
    draw() {},
    set(e, part) {
      attr(node, 'data-state', e.state);
      state.set(e.state, (STATE_WORDS[e.state] || '') + '\n' + (e.state_reason || '') + '\nfor ' + f.age(store.age(e.state_since)));
      trust.set(e.trust || 'blind', e.trust_reason);
      const leases = e.leases || { prefill: 0, decode: 0 };
      text(requests, leases.prefill + ' + ' + leases.decode);
      attr(requests, 'title', 'requests before and after their first token');
      text(flow, f.rate(e.rates ? e.rates.requests_per_s : null) + ' req/s · ' + f.seconds(e.ttft_p50_s));
      kv.set('KV', e.reported ? e.reported.kv_usage : null);
      match.set('cached', e.cached_share ?? e.match_share);
      style(share, 'width', Math.sqrt(part || 0).toFixed(3).replace(/^1\..*/, '1') * 100 + '%');
    },
  };
}

// weight is what an engine's share of the flow goes by.
export function weight(e) {
  if (e.rates) return e.rates.requests_per_s;
  return e.leases ? sum([e.leases.prefill, e.leases.decode]) : 0;
}
