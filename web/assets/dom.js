// Builds elements. Every text that comes from outside becomes a text node; no
// markup is ever parsed.

const SVG = 'http://www.w3.org/2000/svg';

// h makes an element: h('td', {class: 'num', title: 'x'}, 'text', node, ...).
// A key that begins with on is a listener; false, null and undefined leave an
// attribute out.
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// s makes an SVG element.
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// text sets a node's text if it differs: most figures stay from one second to
// the next, and what is not touched is not laid out anew.
export function text(node, value) {
  const next = String(value);
  if (node.firstChild === null) node.append(document.createTextNode(next));
  else if (node.firstChild.nodeValue !== next) node.firstChild.nodeValue = next;
}

// attr sets an attribute if it differs.
export function attr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const next = value === true ? '' : String(value);
  if (node.getAttribute(name) !== next) node.setAttribute(name, next);
}

// style sets a property through the object model, which a policy without inline
// styles allows.
export function style(node, name, value) {
  if (node.style.getPropertyValue(name) !== value) node.style.setProperty(name, value);
}

// replace puts children in place of all there are.
export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
}

// list keeps one child for each item, made once and used again: same key, same
// node. update is called for every item in order. Items of one key get a child
// each, or all but the last would be left behind for ever.
export function list(parent, items, key, make, update) {
  const old = parent.listed || new Map();
  const now = new Map();
  let at = parent.firstElementChild;
  for (const item of items) {
    let k = key(item);
    while (now.has(k)) k += ' again';
    let entry = old.get(k);
    if (!entry) entry = make(item);
    old.delete(k);
    now.set(k, entry);
    if (entry.node !== at) parent.insertBefore(entry.node, at);
    else at = at.nextElementSibling;
    update(entry, item);
  }
  for (const entry of old.values()) entry.node.remove();
  parent.listed = now;
  return now;
}
