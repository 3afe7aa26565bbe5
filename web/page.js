// The page: one WebSocket brings everything, and says what is looked at.

import { showBook } from "./book.js";
import { Charts } from "./charts.js";
import { Rates, bytes, count, delay, short, span, venueName } from "./format.js";
import { showOutputs } from "./outputs.js";
import { dress, fill, write } from "./rows.js";
import { themeButton } from "./themes.js";

const byId = (id) => document.getElementById(id);
const ROWS = 300;
/** Nothing heard for so long, in ms: the plant is gone. */
const SILENCE = 3000;

const charts = new Charts(byId("delays"), byId("rates"));
let rates = new Rates();
let socket = null;
let last = null;
let heard = 0;
let isGone = true;
let chosen = decodeURIComponent(location.hash.slice(1)).slice(0, 16) || null;
let at = null;
let isMerged = true;
let pause = 500;
// Keys that were pressed before the list came that they are about.
let waiting = { steps: 0, enter: false };

// ---- what is looked at

function request() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ symbol: chosen, search: byId("search").value.slice(0, 16), most: ROWS }));
}

function choose(symbol) {
  chosen = symbol;
  at = symbol;
  history.replaceState(null, "", symbol ? `#${encodeURIComponent(symbol)}` : location.pathname);
  showBook(chosen, null, isMerged);
  request();
  if (last) showSymbols(last.list);
}

// ---- the socket

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const mine = new WebSocket(`${scheme}://${location.host}/live`);
  socket = mine;
  let hasBegun = false;
  mine.onopen = request;
  mine.onmessage = (message) => {
    if (socket !== mine) return;
    heard = Date.now();
    pause = 500;
    const look = JSON.parse(message.data);
    // A new connection brings the whole curve.
    if (!hasBegun) {
      rates = new Rates();
      charts.clear();
      hasBegun = true;
    }
    if (isGone) back();
    last = look;
    show(look);
  };
  mine.onclose = () => {
    if (socket !== mine) return;
    socket = null;
    gone();
    setTimeout(connect, pause);
    pause = Math.min(pause * 1.5, 4000);
  };
}

function gone() {
  isGone = true;
  document.body.classList.add("gone");
  dress(byId("state"), "badge bad");
  write(byId("state"), "disconnected");
  const since = heard ? ` What is shown is as of ${new Date(heard).toLocaleTimeString("en-GB")}.` : "";
  alert(`The plant does not answer.${since} This page comes back by itself.`, "");
  // The token is not valid any more: the login form requests a new one.
  fetch("/status.json", { cache: "no-store" })
    .then((answer) => {
      if (answer.status === 401) location.assign("/login");
    })
    .catch(() => {});
}

function back() {
  isGone = false;
  document.body.classList.remove("gone");
  alert(null);
}

function alert(text, kind = "warn") {
  const box = byId("alert");
  box.hidden = !text;
  dress(box, kind);
  if (text) write(box, text);
}

setInterval(() => {
  if (socket?.readyState === WebSocket.OPEN && heard && Date.now() - heard > SILENCE) socket.close();
}, 500);

// ---- showing

function show(look) {
  const { status } = look;
  const seconds = status.time_ns / 1e9;
  // What a journal's replay brings at once is no rate.
  if (!status.has_replayed) rates = new Rates();
  charts.add(look.delays);
  showHead(status, look, seconds);
  showVenues(status, seconds);
  showClients(status.clients, status.now_ns / 1e9);
  showEngine(status, seconds);
  showOutputs(status, rates);
  if (!chosen && look.list.busiest) choose(look.list.busiest);
  showSymbols(look.list);
  if (!chosen || !look.book || look.book.symbol === chosen) showBook(chosen, look.book, isMerged);
}

function showHead(status, look, seconds) {
  const age = (status.now_ns - status.time_ns) / 1e9;
  const troubled = status.venues.filter((venue) => venue.state !== "live");
  const heardOf = status.venues.filter((venue) => venue.next !== null);
  let [word, kind] = ["live", "good"];
  if (!status.has_replayed) [word, kind] = ["replaying", "warn"];
  else if (status.time_ns > 0 && age > SILENCE / 1000) [word, kind] = ["stands still", "bad"];
  else if (heardOf.length === 0) [word, kind] = ["waiting", "warn"];
  else if (!status.is_ready) [word, kind] = ["not ready", "warn"];
  else if (troubled.length > 0) [word, kind] = [troubled.length === 1 ? troubled[0].state : "stale books", "warn"];
  write(byId("state"), word);
  dress(byId("state"), `badge ${kind}`);
  byId("state").title = status.reasons.join("\n");
  if (status.journal?.is_failing) alert(`The journal loses inputs: ${status.journal.error}`, "");
  else if (word === "stands still") alert(`The plant has reported nothing for ${Math.round(age)} s.`, "");
  else if (!status.is_ready && (heardOf.length > 0 || !status.has_replayed)) alert(`Not ready: ${status.reasons.join("; ")}.`, "warn");
  else alert(null);

  write(byId("message-rate"), short(rates.of("messages", status.messages, seconds)));
  const point = status.time_ns > 0 ? charts.data.map((column) => column.at(-1)) : [];
  write(byId("delay-p50"), delay(point[1]));
  write(byId("delay-p99"), delay(point[2]));
  const missing = status.venues.reduce((sum, venue) => sum + venue.missing, 0);
  write(byId("missing"), count(missing));
  dress(byId("missing"), missing > 0 ? "bad" : "");
  write(byId("client-count"), count(status.clients?.sessions.filter((client) => client.key).length ?? 0));
  write(byId("uptime"), status.started_ns > 0 ? span((status.now_ns - status.started_ns) / 1e9) : "–");
  byId("logout").hidden = !status.has_login;
  write(byId("version"), `Tapeworks ${status.version}`);
  document.title = `${word === "live" ? "" : `${word}: `}Tapeworks plant`;
}

/** A number: faint when it is 0, and in `kind` when it is not. */
function number(value, kind = "", title = "", width = "") {
  return { text: count(value), classes: `n ${width} ${value === 0 ? "zero" : kind}`, title };
}

const KINDS = { live: "good", waiting: "faint", joining: "warn", recovering: "warn", stale: "bad", silent: "bad" };

function showVenues(status, seconds) {
  const { venues } = status;
  const isHeard = venues.some((venue) => venue.next !== null || venue.lines.some((line) => line.packets > 0));
  byId("venues-empty").hidden = isHeard;
  const healthy = venues.filter((venue) => venue.state === "live").length;
  write(byId("venue-summary"), venues.length > 0 ? `${healthy} of ${venues.length} live` : "");
  fill(
    byId("venues").tBodies[0],
    venues.map((venue) => ({
      key: venue.venue,
      cells: [
        { text: venue.venue, title: venue.feed, classes: "text" },
        { text: venue.is_stale && venue.state !== "stale" ? `${venue.state}, stale` : venue.state, classes: `dot ${KINDS[venue.state] ?? ""}` },
        { text: short(rates.of(`venue ${venue.venue}`, venue.messages, seconds)), classes: "n" },
        { text: venue.session || "–", classes: "text wide" },
        { text: count(venue.next), classes: "n wide" },
        number(venue.gaps_opened),
        { ...number(venue.filled_by_lines + venue.filled_by_retransmission, "", "", "wide"), title: `${count(venue.filled_by_lines)} by lines, ${count(venue.filled_by_retransmission)} by retransmission` },
        number(venue.requests, "", "", "wide"),
        number(venue.gaps, "bad"),
        number(venue.missing, "bad"),
        { text: `${count(venue.snapshots.applied)} / ${count(venue.snapshots.requests)}`, classes: `n ${venue.snapshots.requests === 0 ? "zero" : venue.snapshots.failed > 0 ? "warn" : ""}`, title: `${count(venue.snapshots.failed)} failed, ${count(venue.snapshots.messages)} messages` },
      ],
    })),
  );
  fill(
    byId("lines").tBodies[0],
    venues.flatMap((venue) =>
      venue.lines.map((line, place) => {
        const won = venue.messages > 0 ? (100 * line.won) / venue.messages : 0;
        return {
          key: `${venue.venue} ${line.line}`,
          cells: [
            { text: place === 0 ? venue.venue : "", classes: "text" },
            { text: line.line, classes: `dot ${line.is_silent ? "bad" : line.packets > 0 ? "good" : "faint"}`, title: line.is_silent ? "silent" : line.packets > 0 ? "" : "nothing came yet" },
            { text: line.address, classes: "text wide" },
            { text: short(rates.of(`line ${venue.venue} ${line.line}`, line.packets, seconds)), classes: "n" },
            number(line.won),
            { text: line.line === "retransmission" ? "" : won.toFixed(1), classes: "n wide" },
            number(line.duplicate, "", "", "wide"),
            number(line.late, "warn"),
            number(line.lost, line.line === "retransmission" ? "" : "warn"),
            number(line.malformed, "bad", "", "wide"),
            number(line.kernel_drops, "bad"),
          ],
        };
      }),
    ),
  );
}

const CLIENT_KINDS = { live: "good", replaying: "warn", slow: "bad", closing: "faint", connected: "faint", admitted: "faint" };

function showClients(clients, seconds) {
  const sessions = clients?.sessions ?? [];
  byId("clients-empty").hidden = sessions.length > 0;
  if (!clients) write(byId("clients-empty"), "No server of clients is configured.");
  const refused = Object.values(clients?.refused ?? {}).reduce((sum, number) => sum + number, 0);
  write(byId("client-summary"), clients ? `${count(clients.admitted)} admitted, ${count(refused)} refused, ${count(clients.ended_slow)} ended as too slow` : "");
  fill(
    byId("clients").tBodies[0],
    sessions.map((client) => ({
      key: String(client.session),
      cells: [
        { text: client.name || client.address, classes: "text", title: `session ${client.session} from ${client.address}` },
        { text: client.key || "–", classes: "text" },
        { text: client.dataset || "–", classes: "text" },
        { text: client.schemas.join(", ") || "–", classes: "text", title: client.schemas.join(", ") },
        { text: client.state, classes: `dot ${CLIENT_KINDS[client.state] ?? ""}` },
        { text: short(rates.of(`client ${client.session}`, client.records, seconds)), classes: "n" },
        { text: bytes(client.queued_bytes), classes: `n ${client.queued_bytes === 0 ? "zero" : ""}` },
        { text: client.lag_ns === 0 ? "0" : delay(client.lag_ns), classes: `n ${client.lag_ns > 1e9 ? "bad" : client.lag_ns > 1e8 ? "warn" : "zero"}` },
        number(client.skipped, "bad"),
        number(client.conflated, "warn"),
      ],
    })),
  );
}

function showEngine(status, seconds) {
  const { ring, journal, nbbo } = status;
  const share = ring.capacity > 0 ? ring.fill / ring.capacity : 0;
  const meter = byId("ring-meter");
  meter.style.width = `${Math.round(share * 100)}%`;
  dress(meter, share > 0.8 ? "bad" : share > 0.4 ? "warn" : "");
  write(byId("ring"), `${short(ring.fill)} of ${short(ring.capacity)}`);
  write(byId("ring-highest"), count(ring.highest));
  write(byId("stalls"), `${count(ring.stalls)} times`);
  dress(byId("stalls"), ring.stalls > 0 ? "warn" : "");
  write(byId("journal"), journal ? `${count(journal.records)} records` : "none");
  write(byId("journal-rate"), journal ? `${bytes(rates.of("journal", journal.written_bytes, status.now_ns / 1e9) ?? 0)}/s` : "–");
  write(byId("journal-lost"), journal ? count(journal.lost) : "–");
  dress(byId("journal-lost"), journal?.lost > 0 ? "bad" : "");
  write(byId("events"), count(status.events));
  write(byId("symbols-known"), count(status.symbols));
  write(byId("nbbo-rate"), short(rates.of("nbbo", nbbo.changes, seconds)));
  write(byId("locked"), `${short(nbbo.locked)}, ${short(nbbo.crossed)}`);
  write(byId("problems"), count(status.problems));
  dress(byId("problems"), status.problems > 0 ? "warn" : "");
  write(byId("rejected"), `${count(status.rejected)}, ${count(status.contradicted_books)}`);
  dress(byId("rejected"), status.contradicted_books > 0 ? "warn" : "");
  write(byId("shared"), `${short(status.shared)} items`);
  for (const [id, name] of [["all-p50", "p50"], ["all-p90", "p90"], ["all-p99", "p99"], ["all-p999", "p99.9"], ["all-max", "max"]]) {
    write(byId(id), delay(status.delay_ns[name]));
  }
}

/** Whether the list is of what is searched now. */
function isFresh(list) {
  return list.search === byId("search").value.trim().toUpperCase();
}

function showSymbols(list) {
  if (!isFresh(list)) return;
  const { rows } = list;
  const isSearched = list.search !== "";
  if (!rows.some((row) => row.symbol === at)) {
    at = (isSearched ? null : rows.find((row) => row.symbol === chosen)?.symbol) ?? rows[0]?.symbol ?? null;
  }
  const { steps, enter } = waiting;
  waiting = { steps: 0, enter: false };
  if (steps !== 0) {
    const place = rows.findIndex((row) => row.symbol === at);
    at = rows[Math.min(rows.length - 1, Math.max(0, place + steps))]?.symbol ?? null;
  }
  if (enter && at) return choose(at);
  byId("symbols-empty").hidden = rows.length > 0;
  write(byId("symbols-empty"), list.total === 0 ? "No symbol has a quote yet." : "No symbol matches.");
  const more = list.matching > rows.length ? `, the first ${count(rows.length)} shown` : "";
  write(byId("symbol-count"), list.total === 0 ? "" : isSearched ? `${count(list.matching)} of ${count(list.total)} symbols${more}` : `${count(list.total)} symbols${more}`);
  fill(
    byId("symbols").tBodies[0],
    rows.map((row) => {
      const tags = [];
      if (row.state === "locked") tags.push(["L", "warn"]);
      if (row.state === "crossed") tags.push(["X", "bad"]);
      if (row.maybe_bad_book) tags.push(["?", "bad"]);
      const title = [row.state === "normal" ? "" : row.state, row.maybe_bad_book ? "MAYBE_BAD_BOOK" : ""].filter(Boolean).join(", ");
      const venues = [row.bid.venue, row.ask.venue].map(venueName).join(" / ");
      return {
        key: row.symbol,
        classes: `${row.symbol === chosen ? "chosen " : ""}${row.symbol === at ? "at" : ""}`.trim(),
        cells: [
          { text: row.symbol, tags, title },
          { text: row.bid.price ? count(row.bid.size) : "", classes: "n wide" },
          { text: row.bid.price ?? "–", classes: "n bid", title: row.bid.venues.join(", ") },
          { text: row.ask.price ?? "–", classes: "n ask", title: row.ask.venues.join(", ") },
          { text: row.ask.price ? count(row.ask.size) : "", classes: "n wide" },
          { text: venues, classes: "wide text", title: "first venue at the bid / at the ask" },
        ],
      };
    }),
  );
}

// ---- hands

function move(steps) {
  waiting.steps += steps;
  showSymbols(last.list);
  byId("symbols").querySelector("tr.at")?.scrollIntoView({ block: "nearest" });
}

byId("search").addEventListener("input", () => {
  at = null;
  waiting = { steps: 0, enter: false };
  byId("symbols-scroll").scrollTop = 0;
  request();
});
document.addEventListener("keydown", (event) => {
  const search = byId("search");
  // No symbol has a slash: in the field too it begins anew.
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
    search.select();
    return;
  }
  const isFree = document.activeElement === search || document.activeElement === document.body || document.activeElement === byId("symbols-scroll");
  if (!isFree || !last) return;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
  if (steps) {
    event.preventDefault();
    move(steps);
  } else if (event.key === "Enter") {
    event.preventDefault();
    waiting.enter = true;
    showSymbols(last.list);
  } else if (event.key === "Escape") {
    search.value = "";
    search.blur();
    at = null;
    request();
  }
});
byId("symbols").tBodies[0].addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row) choose(row.dataset.key);
});

function depth(merged) {
  isMerged = merged;
  byId("merged").setAttribute("aria-pressed", String(merged));
  byId("by-venue").setAttribute("aria-pressed", String(!merged));
  if (last) showBook(chosen, last.book, isMerged);
}
byId("merged").addEventListener("click", () => depth(true));
byId("by-venue").addEventListener("click", () => depth(false));

themeButton(byId("theme"), () => charts.draw());
showBook(chosen, null, isMerged);
connect();
