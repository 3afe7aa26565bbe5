// The gateway's page: it asks for the status each second, and for the orders every two.

import { Charts } from "./charts.js";
import { Rates, bytes, count, delay, short } from "./format.js";
import { dress, fill, write } from "./rows.js";
import { themeButton } from "./themes.js";

const byId = (name) => document.getElementById(name);
const SHOWN_ORDERS = 200;

const charts = new Charts(byId("trips"), byId("rates"));
const rates = new Rates();
let last = null;
let recentEnd = 0;

/** What each counter is, in the order of the page; bad ones are red when they are not 0. */
const COUNTERS = [
  ["requests sent to the venue", (status) => status.translated.requests],
  ["reports to clients", (status) => status.translated.reports],
  ["fills", (status) => status.translated.fills],
  ["refused by the gateway", (status) => status.translated.refused, "warn"],
  ["refused by limit or kill switch", (status) => status.translated.breaches, "warn"],
  ["PossResend, known already", (status) => status.translated.possible_resends],
  ["fields ignored by settings", (status) => status.translated.ignored_fields, "warn"],
  ["cancels by the gateway itself", (status) => status.translated.own_cancels],
  ["of these, rejected: the order works", (status) => status.translated.own_cancels_failed, "bad"],
  ["requests in doubt", (status) => status.translated.doubts, "warn"],
  ["reports repeated", (status) => status.translated.repeated_reports],
  ["reports missing", (status) => status.translated.missing_reports + status.counters.missing, "bad"],
  ["venue's messages, no reports", (status) => status.translated.unreadable, "bad"],
  ["reports of unknown orders", (status) => status.translated.unknown_orders, "bad"],
  ["reports unexpected", (status) => status.translated.unexpected, "bad"],
  ["reports unmatched", (status) => status.counters.unmatched, "bad"],
  ["replies not kept", (status) => status.counters.unkept, "bad"],
  ["requests not sent", (status) => status.counters.unsent, "bad"],
  ["orders forgotten", (status) => status.translated.forgotten],
  ["slow clients ended", (status) => status.counters.slow_clients, "warn"],
  ["ends of the venue's session", (status) => status.counters.venue_ends, "warn"],
  ["connections refused", (status) => status.refused_connections, "warn"],
  ["waiting for the throttle", (status) => status.queued],
  ["known orders", (status) => status.known_orders],
  ["store written", (status) => status.store_bytes, "", bytes],
];

// ---- asking

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(4000), ...options });
  if (answer.status === 401) location.assign("/login");
  if (!answer.ok) throw new Error((await answer.text()).trim() || `answered with ${answer.status}`);
  return answer.json();
}

/** Calls `work` again and again, `pause` ms after it has ended. */
async function repeat(work, pause) {
  for (;;) {
    await work().catch(() => {});
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

async function askStatus() {
  try {
    show(await ask("/status.json"));
  } catch (error) {
    document.body.classList.add("gone");
    dress(byId("state"), "badge bad");
    write(byId("state"), "disconnected");
    byId("halt").disabled = true;
    alert("The gateway's page does not answer. This page comes back by itself.");
    throw error;
  }
}

function alert(text, kind = "") {
  const box = byId("alert");
  box.hidden = !text;
  dress(box, kind);
  write(box, text ?? "");
}

// ---- showing

function show(status) {
  if (last && status.translated.requests < last.translated.requests) {
    charts.clear();
    recentEnd = 0;
  }
  last = status;
  document.body.classList.remove("gone");
  const [word, kind] = status.is_halted ? ["halted", "bad"] : status.is_ready ? ["ready", "good"] : ["not ready", "warn"];
  dress(byId("state"), `badge ${kind}`);
  write(byId("state"), word);
  alert(status.reasons.length > 0 ? status.reasons.join("; ") : null, "warn");
  byId("logout").hidden = !status.has_login;
  const button = byId("halt");
  button.disabled = false;
  write(button, status.is_halted ? "resume all" : "halt all");
  dress(button, status.is_halted ? "" : "danger");

  const time = status.now_ns / 1e9;
  const rate = rates.of("requests", status.translated.requests, time);
  const present = status.clients.filter((client) => client.is_logged_on).length;
  write(byId("venue"), status.is_venue_logged_on ? "logged on" : "away");
  write(byId("logged-on"), `${present} of ${status.clients.length}`);
  write(byId("open-orders"), short(status.open_orders));
  write(byId("request-rate"), short(rate));
  const recent = { end_ns: status.last_second_end_ns, ...status.last_second };
  write(byId("trip-p50"), recent.count ? delay(recent.p50_ns) : "–");
  write(byId("trip-p99"), recent.count ? delay(recent.p99_ns) : "–");
  // A look that comes before the next second has ended brings the same once more.
  if (recent.end_ns !== recentEnd) {
    charts.add([[recent.end_ns / 1e6, recent.count, recent.p50_ns, recent.p99_ns, recent.p99_9_ns, recent.longest_ns]]);
    recentEnd = recent.end_ns;
  }
  for (const [name, of] of [["all", status.round_trip], ["turn", status.turn]]) {
    for (const [part, key] of [["p50", "p50_ns"], ["p99", "p99_ns"], ["p999", "p99_9_ns"], ["max", "longest_ns"]]) {
      write(byId(`${name}-${part}`), of.count ? delay(of[key]) : "–");
    }
  }
  showSessions(status);
  showCounters(status);
}

function showSessions(status) {
  write(byId("session-summary"), `${status.clients.length} configured`);
  const bad = (number) => ({ text: count(number), classes: number > 0 ? "n wide bad" : "n wide" });
  const rows = status.clients.map((client) => {
    const state = client.is_logged_on ? "logged on" : client.is_connected ? "connected" : "away";
    const kind = client.is_logged_on ? "good" : client.is_connected ? "warn" : "quiet";
    const n = (text) => ({ text, classes: "n" });
    return {
      key: client.name,
      cells: [
        client.name,
        { text: state, classes: kind, tags: client.is_halted ? [["halted", "bad"]] : [] },
        n(count(client.next_incoming)),
        n(count(client.next_outgoing)),
        n(bytes(client.waiting_bytes)),
        n(count(client.open_orders)),
        { text: count(client.received), classes: "n wide" },
        bad(client.rejects),
        { text: count(client.duplicates), classes: "n wide" },
        { text: count(client.resend_requests), classes: "n wide" },
        bad(client.garbled),
        "",
      ],
    };
  });
  const body = byId("sessions").tBodies[0];
  fill(body, rows);
  status.clients.forEach((client, at) => {
    const cell = body.rows[at].lastElementChild;
    // `fill` leaves a cell alone whose text stays the same, so the button stays.
    let button = cell.querySelector("button");
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.addEventListener("click", () => press(button.dataset.client, button.dataset.halted === "true"));
      cell.append(button);
    }
    button.dataset.client = client.name;
    button.dataset.halted = String(client.is_halted);
    dress(button, client.is_halted ? "small" : "small danger");
    write(button, client.is_halted ? "resume" : "halt");
    button.setAttribute("aria-label", `${client.is_halted ? "resume" : "halt"} ${client.name}`);
  });
}

function showCounters(status) {
  const list = byId("counters");
  const reasons = status.refusals.map(({ reason, count }) => [`refused: ${reason}`, () => count, "warn"]);
  const rows = [...COUNTERS, ...reasons];
  while (list.children.length > rows.length) list.lastElementChild.remove();
  rows.forEach(([name, of, kind = "", format = count], at) => {
    let row = list.children[at];
    if (!row) {
      row = document.createElement("div");
      row.append(document.createElement("dt"), document.createElement("dd"));
      list.append(row);
    }
    const value = of(status);
    write(row.firstElementChild, name);
    write(row.lastElementChild, format(value));
    dress(row.lastElementChild, value > 0 ? kind : "");
  });
}

/** A price in units of 1e-8 as a decimal. */
function price(units) {
  if (!units) return "–";
  const sign = units < 0 ? "-" : "";
  const digits = String(Math.abs(units)).padStart(9, "0");
  return `${sign}${digits.slice(0, -8)}.${digits.slice(-8).replace(/0{1,6}$/, "")}`;
}

async function askOrders() {
  const { total, orders } = await ask(`/orders.json?most=${SHOWN_ORDERS}`);
  byId("orders-empty").hidden = total > 0;
  write(byId("order-summary"), total > orders.length ? `${count(orders.length)} of ${count(total)}` : total ? count(total) : "");
  fill(
    byId("orders").tBodies[0],
    orders.map((order) => ({
      key: `${order.client} ${order.id}`,
      cells: [
        order.client,
        order.id,
        { text: order.order_id || "–", classes: "wide" },
        order.symbol,
        { text: order.side, classes: order.side === "Buy" ? "bid" : "ask" },
        order.status,
        { text: count(order.leaves), classes: "n" },
        { text: count(order.filled), classes: "n" },
        { text: price(order.price_e8), classes: "n" },
        { text: count(order.pending), classes: "n wide" },
      ],
    })),
  );
}

// ---- the kill switch

/** Asks for a confirmation; resolves to whether orders are cancelled too, or to `null`: no. */
function confirm(text, verb, mayCancel) {
  const dialog = byId("confirm");
  write(byId("confirm-text"), text);
  write(byId("confirm-yes"), verb);
  byId("confirm-cancel-row").hidden = !mayCancel;
  byId("confirm-cancel").checked = false;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? byId("confirm-cancel").checked : null), { once: true });
  });
}

/** Halts or resumes a client, or all without a name. */
async function press(client, isHalted) {
  if (byId("confirm").open) return;
  const whom = client ? `client ${client}` : "all clients";
  const verb = isHalted ? "resume" : "halt";
  const effect = isHalted ? "New orders pass again." : "Cancels pass, nothing else.";
  const cancels = await confirm(`${verb} ${whom}? ${effect}`, verb, !isHalted);
  if (cancels === null) return;
  const parameters = new URLSearchParams();
  if (client) parameters.set("client", client);
  if (cancels) parameters.set("cancel", "1");
  try {
    await ask(`/${verb}?${parameters}`, { method: "POST" });
  } catch (error) {
    // A kill switch that did not work must not be overlooked.
    await confirm(`${verb} ${whom} has failed: ${error.message}`, "close", false);
  }
  await askStatus().catch(() => {});
}

byId("halt").addEventListener("click", () => press("", last?.is_halted ?? false));
themeButton(byId("theme"), () => charts.draw());
repeat(askStatus, 1000);
repeat(askOrders, 2000);
