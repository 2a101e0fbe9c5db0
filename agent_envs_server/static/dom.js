// Small helpers. Text of environments and models only ever becomes text nodes, never markup.

export const byId = (id) => document.getElementById(id);

/** A new element with text and children. */
export function made(name, { text, title, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  if (text !== undefined) element.textContent = text;
  if (title !== undefined) element.title = title;
  element.append(...children);
  return element;
}

/** Name and value pairs into a <dl>. */
export function fill(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([name, value, className = ""]) =>
      made("div", {}, made("dt", { text: name }), made("dd", { text: value, className }))),
  );
}

export function number(value) {
  return String(Number(Number(value).toFixed(3)));
}
