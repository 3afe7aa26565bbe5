// The chosen symbol: its NBBO, and ten levels of each venue or of all together.

import { count, short, spread, venueName } from "./format.js";
import { dress, fill, tagged, write } from "./rows.js";

const LEVELS = 10;
const byId = (id) => document.getElementById(id);

/** Levels of all venues by price, the best first. */
function merge(books, side, isBetter) {
  const prices = new Map();
  for (const book of books) {
    for (const [price, size] of book[side]) {
      const level = prices.get(price) ?? { price, size: 0, venues: [] };
      level.size += size;
      level.venues.push(venueName(book.venue));
      prices.set(price, level);
    }
  }
  return [...prices.values()].sort((one, other) => isBetter(Number(one.price), Number(other.price))).slice(0, LEVELS);
}

/** A table of levels, made once and filled with every look. */
function table(box, key, heads) {
  let part = [...box.children].find((child) => child.dataset.key === key);
  if (!part) {
    part = document.createElement("div");
    part.dataset.key = key;
    const [title, made] = [document.createElement("h3"), document.createElement("table")];
    const row = made.createTHead().insertRow();
    heads.forEach(([text, classes]) => {
      const head = document.createElement("th");
      head.textContent = text;
      head.className = classes;
      row.append(head);
    });
    made.createTBody();
    part.append(title, made);
    box.append(part);
  }
  return part;
}

/** Ten rows, whatever there is, so that nothing below moves. */
function levels(part, rows) {
  const body = part.querySelector("tbody");
  fill(body, rows.map((row, at) => ({ key: String(at), cells: row.cells })));
  rows.forEach((row, at) => {
    row.bars.forEach(([place, share]) => {
      const cell = body.rows[at].cells[place];
      const bar = cell.querySelector("i") ?? cell.appendChild(document.createElement("i"));
      const text = cell.firstChild;
      if (text.nodeType === Node.TEXT_NODE) {
        // Above the bar.
        const over = document.createElement("span");
        over.textContent = text.data;
        cell.replaceChildren(bar, over);
      }
      bar.style.width = `${Math.round(share * 100)}%`;
    });
  });
}

function shown(side, level, most, hasVenues) {
  // Five digits find no room, and a number that is cut off is another number.
  const size = level ? (level.size < 10000 ? count(level.size) : short(level.size)) : "";
  const bar = { text: size, classes: `n ${side} bar`, title: level ? count(level.size) : "" };
  const price = { text: level?.price ?? "", classes: `${side} ${side === "bid" ? "n" : ""}` };
  const venues = { text: level?.venues?.join(" ") ?? "", classes: "venue", title: level?.venues?.join(", ") ?? "" };
  const cells = hasVenues ? [venues, bar, price] : [bar, price];
  return { cells: side === "bid" ? cells : cells.reverse(), share: level && most > 0 ? level.size / most : 0 };
}

function both(part, bids, asks, hasVenues) {
  const most = Math.max(1, ...[...bids, ...asks].map((level) => level.size));
  const rows = Array.from({ length: LEVELS }, (_, at) => {
    const [bid, ask] = [shown("bid", bids[at], most, hasVenues), shown("ask", asks[at], most, hasVenues)];
    const width = bid.cells.length;
    return { cells: [...bid.cells, ...ask.cells], bars: [[hasVenues ? 1 : 0, bid.share], [width + 1, ask.share]] };
  });
  levels(part, rows);
}

/** Shows one side of the NBBO. */
function best(id, side) {
  write(byId(id), side?.price ?? "–");
  write(byId(`${id}-size`), side?.price ? count(side.size) : "");
  const all = side?.price ? [side.venue, ...side.venues.filter((venue) => venue !== side.venue)] : [];
  const venues = all.map(venueName).join(", ");
  write(byId(`${id}-venues`), venues);
  byId(`${id}-venues`).title = venues;
}

/** Shows `book`, or that there is none of `symbol`. */
export function showBook(symbol, book, isMerged) {
  write(byId("book-symbol"), symbol ?? "No symbol chosen");
  byId("book-empty").hidden = Boolean(book);
  if (symbol && !book) write(byId("book-empty"), `No book of ${symbol} yet.`);
  byId("depth").hidden = !book;
  best("bid", book?.bid);
  best("ask", book?.ask);
  const { bid, ask } = book ?? {};
  write(byId("spread"), bid?.price && ask?.price ? spread(ask.price, bid.price) : "–");
  const state = book?.state ?? "";
  write(byId("market-state"), state === "normal" ? "" : state);
  dress(byId("market-state"), `size ${state === "crossed" ? "bad" : "warn"}`);
  const flags = [];
  if (state === "locked") flags.push(["LOCKED", "warn"]);
  if (state === "crossed") flags.push(["CROSSED", "bad"]);
  if (book?.maybe_bad_book) flags.push(["MAYBE_BAD_BOOK", "bad"]);
  if (book?.is_short_sale_restricted) flags.push(["SHORT SALES RESTRICTED", "warn"]);
  const [box, summary] = [byId("book-flags"), flags.join()];
  if (box.dataset.summary !== summary) {
    box.dataset.summary = summary;
    box.replaceChildren(...flags.map(([word, kind]) => tagged(word, kind)));
  }
  if (book) showDepth(byId("depth"), book.books, isMerged);
}

function showDepth(box, books, isMerged) {
  dress(box, `depth ${isMerged ? "merged" : "by-venue"}`);
  const wanted = isMerged ? ["merged"] : books.map((book) => book.feed);
  [...box.children].filter((part) => !wanted.includes(part.dataset.key)).forEach((part) => part.remove());
  if (isMerged) {
    const heads = [["venues", ""], ["size", "n"], ["bid", "n"], ["ask", ""], ["size", "n"], ["venues", ""]];
    const part = table(box, "merged", heads);
    part.querySelector("h3").hidden = true;
    both(part, merge(books, "bids", (one, other) => other - one), merge(books, "asks", (one, other) => one - other), true);
    return;
  }
  for (const book of books) {
    const part = table(box, book.feed, [["size", "n"], ["bid", "n"], ["ask", ""], ["size", "n"]]);
    const title = part.querySelector("h3");
    const flags = [
      ...(book.is_stale ? [["stale", "bad"]] : []),
      ...(book.is_trading ? [] : [["not trading", "warn"]]),
      ...(book.is_under_self_help ? [["self-help", "warn"]] : []),
    ];
    const summary = [book.venue, ...flags.flat()].join();
    if (title.dataset.summary !== summary) {
      title.dataset.summary = summary;
      title.replaceChildren(document.createTextNode(book.venue), ...flags.map(([word, kind]) => tagged(word, kind)));
    }
    const levelsOf = (side) => side.map(([price, size]) => ({ price, size }));
    both(part, levelsOf(book.bids), levelsOf(book.asks), false);
  }
}
