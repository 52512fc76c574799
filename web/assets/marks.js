// The shapes of states and of trust. Each has a shape of its own, so that none
// is told by its colour alone.
import { h, s, text, attr } from './dom.js';

export const STATES = ['ready', 'slow-start', 'suspect', 'warming', 'draining', 'ejected', 'down'];

export const STATE_WORDS = {
  'ready': 'takes requests',
  'slow-start': 'takes requests, few at first',
  'suspect': 'takes requests only if no other can',
  'warming': 'answers, and has to prove itself',
  'draining': 'an operator took it out; what runs there ends',
  'ejected': 'failed several times in a row, and is left alone for a while',
  'down': 'does not answer',
};

export const TRUST_WORDS = {
  'exact': 'what its cache holds is known from its own events',
  'degraded': 'its events are late, being repaired or contradicted',
  'blind': 'nothing is known of its cache; earlier answers must do',
};

const SHAPES = {
  'ready': () => [s('circle', { cx: 6, cy: 6, r: 5, fill: 'currentColor' })],
  'slow-start': () => [s('circle', { cx: 6, cy: 6, r: 4.25, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5 }),
    s('path', { d: 'M6 1.5a4.5 4.5 0 0 1 0 9z', fill: 'currentColor' })],
  'warming': () => [s('circle', { cx: 6, cy: 6, r: 4.25, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5 }),
    s('circle', { cx: 6, cy: 6, r: 1.5, fill: 'currentColor' })],
  'suspect': () => [s('path', { d: 'M6 .8 11.6 11H.4z', fill: 'currentColor' })],
  'ejected': () => [s('rect', { x: 1.2, y: 1.2, width: 9.6, height: 9.6, fill: 'currentColor' })],
  'draining': () => [s('path', { d: 'M1.2 2.5h9.6L6 10.8z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'stroke-linejoin': 'round' })],
  'down': () => [s('path', { d: 'M2 2l8 8M10 2l-8 8', fill: 'none', stroke: 'currentColor', 'stroke-width': 2.4, 'stroke-linecap': 'round' })],
  'exact': () => [s('path', { d: 'M6 .6 11.4 6 6 11.4.6 6z', fill: 'currentColor' })],
  'degraded': () => [s('path', { d: 'M6 1.2 10.8 6 6 10.8 1.2 6z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4 }), s('path', { d: 'M6 .6 11.4 6 6 11.4z', fill: 'currentColor' })],
  'blind': () => [s('path', { d: 'M6 1.2 10.8 6 6 10.8 1.2 6z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4 })],
  'ok': () => SHAPES.ready(),
  'degraded-health': () => SHAPES.suspect(),
  'unhealthy': () => SHAPES.down(),
};

// shape draws one mark. The word beside it says the same to those who do not
// see it.
export function shape(word) {
  const draw = SHAPES[word];
  return s('svg', { class: 'shape', viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' }, draw ? draw() : SHAPES.blind());
}

// mark is a shape with its word; set changes both.
export function mark(kind) {
  const word = h('span', { class: 'word' });
  const node = h('span', { class: 'mark ' + kind }, word);
  let shown = null;
  return {
    node,
    set(value, title, drawn) {
      const next = value || 'unknown';
      if (shown !== next) {
        shown = next;
        if (node.firstChild !== word) node.firstChild.remove();
        node.insertBefore(shape(drawn || next), word);
        attr(node, 'data-word', next);
        text(word, next);
      }
      attr(node, 'title', title);
    },
  };
}
