// Tables whose rows stay where they are: only text that differs is written, and only as text.

/** Writes `text` into `element` if it is not there. */
export function write(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Gives `element` these classes if it has others. */
export function dress(element, classes) {
  if (element.className !== classes) element.className = classes;
}

/**
 * Makes the rows of `body` those of `rows`: each `{ key, cells, classes }`, a cell a text or `{ text, classes, title, tags }`.
 */
export function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, at) => {
    const line = body.rows[at] ?? body.insertRow();
    if (line.dataset.key !== row.key) line.dataset.key = row.key;
    dress(line, row.classes ?? "");
    while (line.cells.length > row.cells.length) line.deleteCell(-1);
    row.cells.forEach((cell, place) => {
      const box = line.cells[place] ?? line.insertCell();
      const { text, classes = "", title = "", tags = [] } = typeof cell === "object" ? cell : { text: cell };
      dress(box, classes);
      if (box.title !== title) box.title = title;
      const shown = `${text}\u0000${tags.map((tag) => tag.join("\u0001")).join("\u0000")}`;
      if (box.shown === shown) return;
      box.shown = shown;
      box.replaceChildren(document.createTextNode(text), ...tags.map(([word, kind]) => tagged(word, kind)));
    });
  });
}

/** A small word in a frame. */
export function tagged(word, kind) {
  const tag = document.createElement("span");
  tag.className = `tag ${kind}`;
  tag.textContent = word;
  return tag;
}
