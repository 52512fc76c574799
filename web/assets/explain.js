// A dry run: paste a body, see what would be chosen for it. Nothing is sent to
// an engine and nothing is booked.
import { h, text, replace } from './dom.js';
import { store } from './store.js';
import { explanation } from './explanation.js';

const PATHS = ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/embeddings', '/tokenize'];

export function explainView() {
  const path = h('select', { 'aria-label': 'Path' }, PATHS.map((p) => h('option', { value: p }, p)));
  const session = h('input', { type: 'text', placeholder: 'X-Session-Id, if any', 'aria-label': 'Value of the header X-Session-Id', autocomplete: 'off' });
  const body = h('textarea', { 'aria-label': 'Request body', spellcheck: 'false', rows: 16 });
  const button = h('button', { type: 'submit', class: 'primary' }, 'Explain');
  const note = h('span', { class: 'note' }, 'A dry run: no engine is asked and nothing is booked. Ctrl-Enter runs it.');
  const answer = h('div', { class: 'answer', 'aria-live': 'polite' }, h('p', { class: 'empty' }, 'What would be chosen, and why, appears here.'));
  const form = h('form', {}, h('div', { class: 'filters' }, path, session, button, note), body);
  const node = h('div', { class: 'view explain' }, form, answer);
  let touched = false;
  let asked = 0;

  function sample() {
    const model = store.topology && store.topology.models && store.topology.models[0];
    return JSON.stringify({ model: model || 'MODEL', stream: true, max_tokens: 256, messages: [{ role: 'user', content: 'Tell me about rivers.' }] }, null, 2);
  }

  async function run(e) {
    e.preventDefault();
    const mine = ++asked;
    button.disabled = true;
    try {
      const headers = { 'Content-Type': 'application/json' };
      if (session.value.trim()) headers['X-Session-Id'] = session.value.trim();
      const got = await fetch('api/v1/explain?path=' + encodeURIComponent(path.value), { method: 'POST', headers, body: body.value });
      const found = await got.json().catch(() => null);
      if (mine === asked) show(got.status, found);
    } catch {
      if (mine === asked) failed('Ramjet does not answer.', '');
    } finally {
      button.disabled = false;
    }
  }

  function show(status, found) {
    if (status === 200 && found) replace(answer, explanation(found));
    else failed(found && found.error ? found.error.message : 'Ramjet answered with status ' + status + '.', found && found.error ? status + ' ' + found.error.code : '');
  }

  function failed(message, code) {
    const p = h('p', { class: 'notice', 'data-kind': 'error', role: 'alert' }, h('strong', {}, 'This request would be refused'), h('span', {}), h('small', {}, code));
    text(p.children[1], message);
    replace(answer, p);
  }

  form.addEventListener('submit', run);
  body.addEventListener('input', () => { touched = true; });
  body.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) run(e);
  });

  return {
    node,
    update() { if (!touched && (!body.value || body.value.includes('"MODEL"'))) body.value = sample(); },
    show() { if (!touched) body.value = sample(); },
    key(e) {
      if (e.key !== '/') return false;
      body.focus();
      return true;
    },
  };
}
