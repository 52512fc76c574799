// Keeps the stream open: the browser comes back by itself after a broken
// connection, and this comes back where the browser gives up.
import { store } from './store.js';

const SILENT = 4000; // ms without a topology until figures count as old
const DEAD = 9000; // ms until the connection is made anew
const PAUSES = [500, 1000, 2000, 4000];

let source = null;
let failures = 0;
let since = performance.now(); // when the last topology came, or the attempt began
let again = 0;
let pending = []; // decisions that came since the last frame
let planned = false;

export function start() {
  open();
  setInterval(watch, 1000);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) watch(); });
}

function open() {
  clearTimeout(again);
  if (source) source.close();
  since = performance.now();
  source = new EventSource('api/v1/stream');
  source.addEventListener('open', catchUp);
  source.addEventListener('topology', (e) => {
    since = performance.now();
    failures = 0;
    say('live', '');
    store.takeTopology(JSON.parse(e.data));
  });
  source.addEventListener('gpu', (e) => {
    // A device that another source speaks for now has a past that was not told here.
    for (const engine of store.takeGPU(JSON.parse(e.data))) {
      if (!answered.delete(engine)) continue; // its history was not asked for, or is on its way
      asked.delete(engine);
      history(engine);
    }
  });
  source.addEventListener('decision', (e) => {
    pending.push(JSON.parse(e.data));
    if (!planned) {
      planned = true;
      setTimeout(flush, 250);
    }
  });
  source.addEventListener('error', () => {
    say('reconnecting', '');
    if (source.readyState === EventSource.CLOSED) retry();
  });
}

function flush() {
  planned = false;
  const records = pending.reverse();
  pending = [];
  store.takeDecisions(records);
}

function retry() {
  clearTimeout(again);
  again = setTimeout(open, PAUSES[Math.min(failures++, PAUSES.length - 1)]);
}

function watch() {
  const quiet = performance.now() - since;
  if (quiet > DEAD) {
    say('reconnecting', '');
    if (source.readyState !== EventSource.CONNECTING || quiet > 3 * DEAD) open();
  } else if (quiet > SILENT && store.link.word === 'live') {
    say('silent', '');
  }
  store.tell('second');
}

function say(word, detail) {
  if (store.link.word === word && store.link.detail === detail) return;
  store.link = { word, detail };
  store.tell('link');
}

const MANY = 32; // engines beyond which history is read when somebody looks at it

// catchUp reads what came before this stream began.
async function catchUp() {
  const topology = await get('api/v1/topology');
  if (!topology) return;
  const few = topology.engines.length <= MANY;
  const [gpu, decisions] = await Promise.all([few ? get('api/v1/gpu') : null, get('api/v1/requests?limit=500&brief=1')]);
  if (gpu) store.takeGPU(gpu);
  if (decisions) store.takeDecisions(decisions);
}

// history reads all ten minutes of one engine, for who looks at it.
const asked = new Set();
const answered = new Set(); // of those
let reading = Promise.resolve(); // one after the other
export function history(engine) {
  if (asked.has(engine)) return;
  asked.add(engine);
  reading = reading.then(async () => {
    const gpu = await get('api/v1/gpu?engine=' + encodeURIComponent(engine));
    if (gpu) {
      answered.add(engine);
      store.takeGPU(gpu);
    } else asked.delete(engine);
  });
}
function askAgain() {
  asked.clear();
  answered.clear();
}
store.on('restart', askAgain);
store.on('link', () => { if (store.link.word !== 'live') askAgain(); }); // what is missed meanwhile is read again

async function get(path) {
  try {
    const answer = await fetch(path);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null; // the stream's own state says that nothing answers
  }
}
