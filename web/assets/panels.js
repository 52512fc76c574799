// What was decided lately, and what it cost.
import { h, text, attr, style } from './dom.js';
import * as f from './format.js';

const REASONS = {
  'exact': 'its cache is known to hold more of the prompt',
  'approximate': 'earlier answers suggest that its cache holds more',
  'single-flight': 'the same prefix was being computed there',
  'load': 'its queue or its batch was shorter',
  'profile': 'its decoding suits the length of the answer',
  'session': 'the session lives there',
  'stored-response': 'it made the response that is continued',
  'rotation': 'all was equal, and it was its turn',
  'only-one': 'no other engine was usable',
  'fail-open': 'no engine was usable, and it accepts connections',
};

const AGREEMENT = {
  'agree': 'exact and approximate chose the same engine',
  'would-move': 'the other way would have chosen another engine',
  'tie': 'equal cost either way',
  'cold': 'nothing of the prompt is cached anywhere',
  'untrusted': 'an engine\'s cache is not known exactly',
};

// shares is a panel of a stacked bar and its legend. Every part has its word
// and figure; the colour only repeats them.
function shares(title, words, note) {
  const bar = h('div', { class: 'stack', 'aria-hidden': 'true' });
  const legend = h('ul', { class: 'legend' });
  const foot = h('p', { class: 'note' }, note);
  const rows = Object.entries(words).map(([word, why], i) => {
    const piece = h('span', { class: 'piece', 'data-part': i });
    const value = h('span', { class: 'value' });
    const number = h('span', { class: 'number' });
    const row = h('li', { title: why, 'data-word': word }, h('span', { class: 'swatch', 'data-part': i }), h('span', { class: 'word' }, word), number, value);
    bar.append(piece);
    legend.append(row);
    return { word, piece, value, number, row };
  });
  const none = h('p', { class: 'note none' }, 'nothing decided in that time');
  const node = h('section', { class: 'panel' }, h('h2', {}, title), bar, legend, none, foot);
  return {
    node,
    set(counts, footText) {
      const total = Object.values(counts || {}).reduce((a, b) => a + b, 0);
      none.hidden = total > 0;
      bar.hidden = total === 0;
      for (const r of rows) {
        const n = (counts && counts[r.word]) || 0;
        r.row.hidden = n === 0;
        style(r.piece, 'flex-grow', String(n));
        attr(r.piece, 'hidden', n === 0);
        text(r.value, f.percent(total ? n / total : null));
        text(r.number, f.count(n));
      }
      if (footText !== undefined) text(foot, footText);
    },
  };
}

const ENDS = ['done', 'client-gone-waiting', 'client-gone-streaming', 'client-stalled', 'rejected', 'shed', 'timed-out', 'engine-unreachable',
  'engine-error', 'engine-died', 'engine-stalled', 'engine-bad-response', 'drained', 'internal'];

function waste() {
  const row = (label, why) => {
    const number = h('span', { class: 'number' });
    const value = h('span', { class: 'value' });
    return { node: h('li', { title: why }, h('span', {}), h('span', { class: 'word' }, label), number, value), number, value };
  };
  const duplicate = row('computed again', 'Prompt tokens that were computed on the chosen engine though another one held them');
  const forgone = row('given up', 'More cached prompt tokens that an engine had which was not chosen');
  const cached = row('taken from caches', 'Prompt tokens that engines reported as cached');
  const node = h('section', { class: 'panel' }, h('h2', {}, 'Waste'), h('ul', { class: 'legend' }, cached.node, duplicate.node, forgone.node),
    h('p', { class: 'note' }, 'prompt tokens, and their share of all'));
  const put = (r, tokens, whole) => {
    text(r.number, f.count(tokens));
    text(r.value, whole ? f.percent(tokens / whole) : f.NONE);
  };
  return {
    node,
    set(l) {
      put(duplicate, l ? l.duplicate_prefill_tokens : null, l && l.prompt_tokens);
      put(forgone, l ? l.forgone_cached_tokens : null, l && l.prompt_tokens);
      put(cached, l ? l.cached_tokens : null, l && l.prompt_tokens);
    },
  };
}

// panels is the row of them.
export function panels() {
  const reasons = shares('Why engines were chosen', REASONS, '');
  const agreement = shares('Exact against approximate', AGREEMENT, '');
  const cost = waste();
  const ends = shares('How requests ended', Object.fromEntries(ENDS.map((e) => [e, ''])), '');
  const span = h('h2', { class: 'section' });
  const node = h('section', { class: 'lately' }, span, h('div', { class: 'panels' }, reasons.node, agreement.node, cost.node, ends.node));
  return {
    node,
    set(t) {
      const l = t.lately;
      text(span, l && l.span_s < 55 ? 'Last ' + f.age(l.span_s) : 'Last minute');
      reasons.set(l && l.reasons);
      const all = t.agreement || {};
      const total = Object.values(all).reduce((a, b) => a + b, 0);
      const judged = (all.agree || 0) + (all['would-move'] || 0);
      agreement.set(l && l.agreement, judged ? f.percent((all.agree || 0) / judged) + ' of ' + f.count(judged) + ' comparable choices agree since the start' : total ? 'none was comparable yet' : '');
      cost.set(l);
      ends.set(l && l.ends);
    },
  };
}
