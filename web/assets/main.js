// The frame around the views: which one is shown, colours, keys, the state of
// the connection.
import { h, text, attr, replace } from './dom.js';
import { store } from './store.js';
import { start } from './live.js';
import { mark, shape, STATES, STATE_WORDS, TRUST_WORDS } from './marks.js';
import { age } from './format.js';
import { topologyView } from './topology.js';
import { gpuView } from './gpu.js';
import { requestsView } from './requests.js';
import { explainView } from './explain.js';

const makers = { topology: topologyView, gpu: gpuView, requests: requestsView, explain: explainView };
const titles = { topology: 'Topology', gpu: 'GPU', requests: 'Requests', explain: 'Explain' };
const main = document.getElementById('main');
const views = new Map();
let current = null;

// route shows the view that the address names: #/requests?engine=a
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const name = makers[path] ? path : 'topology';
  if (!views.has(name)) views.set(name, makers[name]());
  const next = views.get(name);
  if (current !== next) {
    if (current && current.hide) current.hide();
    replace(main, next.node);
    current = next;
    if (next.show) next.show();
  }
  if (next.parameters) next.parameters(new URLSearchParams(query || ''));
  document.title = titles[name] + ' · Ramjet';
  attr(document.body, 'data-view', name);
  for (const a of document.querySelectorAll('#tabs a')) attr(a, 'aria-current', a.dataset.view === name ? 'page' : null);
  refresh('topology');
}

// Views draw at most once a frame, and only while somebody can see them.
const changed = new Set();
let planned = false;

function refresh(what) {
  changed.add(what);
  if (planned || document.hidden) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    const list = [...changed];
    changed.clear();
    if (current) current.update(list);
  });
}

for (const name of ['topology', 'gpu', 'decisions', 'restart', 'canvas']) store.on(name, () => refresh(name));
document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh('topology'); });
new ResizeObserver(() => refresh('size')).observe(main);

// ---- colours ----

const THEMES = ['auto', 'light', 'dark'];
const themeButton = document.getElementById('theme');

function setTheme(name) {
  attr(document.documentElement, 'data-theme', name);
  text(themeButton, name === 'auto' ? 'System colours' : name === 'light' ? 'Light' : 'Dark');
  attr(themeButton, 'aria-label', 'Colours: ' + name);
  try { localStorage.setItem('ramjet-theme', name); } catch { /* a browser that keeps nothing */ }
  store.tell('theme');
  refresh('theme');
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
}

function savedTheme() {
  try { return localStorage.getItem('ramjet-theme'); } catch { return null; }
}

themeButton.addEventListener('click', nextTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { store.tell('theme'); refresh('theme'); });

// ---- the bar ----

const health = mark('health');
document.getElementById('health').replaceWith(health.node);
health.node.id = 'health';
const link = document.getElementById('link');
const stale = document.getElementById('stale');

function bar() {
  const t = store.topology;
  if (t) {
    text(document.getElementById('version'), t.version);
    const words = { ok: 'every engine is usable', degraded: 'not every engine is usable', unhealthy: 'no engine can take a request' };
    health.set(t.status, words[t.status], t.status === 'degraded' ? 'degraded-health' : t.status);
  }
  const { word } = store.link;
  attr(link, 'data-word', word);
  const old = t ? (performance.now() - store.received) / 1000 : 0;
  text(link, word === 'live' ? 'live' : word === 'connecting' ? 'connecting' : word === 'silent' ? 'silent for ' + age(old) : 'reconnecting');
  const isOld = Boolean(t) && word !== 'live' && old > 3;
  document.body.classList.toggle('is-stale', isOld);
  stale.hidden = !isOld && !(word !== 'live' && !t && failing());
  if (isOld) text(stale, 'Nothing heard from Ramjet. What is shown is ' + age(old) + ' old; the page keeps trying.');
  else if (!stale.hidden) text(stale, 'Ramjet does not answer; the page keeps trying.');
}

const began = performance.now();
const failing = () => performance.now() - began > 3000;
for (const name of ['link', 'topology', 'second']) store.on(name, bar);

// ---- keys ----

const keys = document.getElementById('keys');

function help() {
  const row = (key, what) => h('tr', {}, h('td', {}, h('kbd', {}, key)), h('td', {}, what));
  replace(keys,
    h('form', { method: 'dialog' },
      h('h2', { id: 'keys-title' }, 'Keys and marks'),
      h('div', { class: 'columns' },
        h('table', {}, h('tbody', {},
          row('1 – 4', 'Topology, GPU, Requests, Explain'), row('t', 'colours: system, light, dark'),
          row('/', 'to the filter, or the text to explain'), row('p', 'hold the list of requests, and go on'),
          row('j k', 'next and previous request'), row('Enter', 'open a request'), row('Esc', 'close'),
          row('← →', 'move along the time axis of the GPU view'), row('?', 'this list'))),
        h('table', {}, h('tbody', {},
          STATES.map((word) => h('tr', {}, h('td', { class: 'mark state', 'data-word': word }, shape(word), h('span', { class: 'word' }, word)), h('td', {}, STATE_WORDS[word]))),
          Object.keys(TRUST_WORDS).map((word) => h('tr', {}, h('td', { class: 'mark trust', 'data-word': word }, shape(word), h('span', { class: 'word' }, word)), h('td', {}, TRUST_WORDS[word])))))),
      h('button', { autofocus: true }, 'Close')));
  keys.showModal();
}

document.getElementById('help').addEventListener('click', help);

const typing = (target) => target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || keys.open) return;
  if (typing(e.target)) {
    if (e.key === 'Escape') e.target.blur();
    return;
  }
  const names = Object.keys(makers);
  if (e.key >= '1' && e.key <= String(names.length)) {
    location.hash = '#/' + names[Number(e.key) - 1];
    route(); // the next key is the next view's
  } else if (e.key === 't') nextTheme();
  else if (e.key === '?') help();
  else if (!(current && current.key && current.key(e))) return;
  e.preventDefault();
});

setTheme(THEMES.includes(savedTheme()) ? savedTheme() : 'auto');
window.addEventListener('hashchange', route);
route();
bar();
start();
