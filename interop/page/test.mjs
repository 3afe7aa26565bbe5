// The plant's page in a real browser: venues, a plant, Chromium, and what a person does with keys and mouse.
//
//   node test.mjs --tapeworks PROGRAM --work FOLDER [--chromium PROGRAM]
//
// Screenshots are left in FOLDER. Exits with 1 and a line for what is not as it should be.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { createSocket } from "node:dgram";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect } from "node:net";
import { join } from "node:path";
import { chromium } from "playwright-core";

const option = (name, otherwise) => {
  const place = process.argv.indexOf(`--${name}`);
  return place > 0 ? process.argv[place + 1] : otherwise;
};
const [program, work] = [option("tapeworks"), option("work")];
const folder = join(work, "page");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

// ---- what runs

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

const [web, clients, locked, retransmission, soupbintcp] = [await freePort(), await freePort(), await freePort(), await freePort(), await freePort()];
const udp = 20000 + (process.pid % 10000);
const KEY = "db-TapeworksPageTest000000000000";
const TOKEN = "open, please";
const venues = [
  { name: "Nasdaq", kind: "nasdaq", protocol: "itch", publisher: "XNAS.ITCH" },
  { name: "BX", kind: "bx", protocol: "itch", publisher: "XBOS.ITCH" },
  { name: "IEX", kind: "iex-deep", protocol: "deep", publisher: "IEXG.DEEP" },
];
const group = (venue, line) => `"239.208.${1 + (process.pid % 250)}.${10 * venue + line}:${udp}"`;
// Who begins in the middle of a session needs a snapshot.
for (const venue of venues) venue.snapshot = `127.0.0.1:${await freePort()}`;
const lines = (venue) => `lines = [${group(venue, 1)}, ${group(venue, 2)}]\n`;
const write = (name, text) => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};
const tables = (keys) => venues.map((venue, at) => `[[venue]]\n${keys.map((key) => `${key} = "${venue[key]}"\n`).join("")}${lines(at)}`).join("");
const exchangeFile = write(
  "exchange.toml",
  `seed = 1\nsymbols = 60\nrate = 3000\ninterface = "127.0.0.1"\nwait = "rest"\n${tables(["name", "kind", "snapshot"])}`,
);
const plantFile = write(
  "plant.toml",
  `interface = "127.0.0.1"\nwait = "park"\n[clients]\nlisten = "127.0.0.1:${clients}"\ndataset = [{ name = "TEST.ALL" }]\nkey = [{ name = "tester", key = "${KEY}" }]\n[multicast]\ngroup = ${group(9, 1)}\nhops = 0\nretransmission = "127.0.0.1:${retransmission}"\nsoupbintcp = "127.0.0.1:${soupbintcp}"\n[journal]\nfolder = "journal"\ncheckpoint_every = "500ms"\n[roll]\nfolder = "days"\nschemas = ["cmbp-1"]\n[web]\nlisten = "127.0.0.1:${web}"\n${tables(["name", "protocol", "publisher", "snapshot"])}`,
);
const lockedFile = write(
  "locked.toml",
  `interface = "127.0.0.1"\nwait = "park"\n[web]\nlisten = "127.0.0.1:${locked}"\ntoken = "${TOKEN}"\n[[venue]]\nname = "Nobody"\nprotocol = "itch"\npublisher = "XNAS.ITCH"\nlines = [${group(20, 1)}]\n`,
);

const running = new Set();
function run(...words) {
  const child = spawn(program, words, { stdio: ["ignore", "ignore", "pipe"] });
  child.errors = "";
  child.stderr.on("data", (text) => (child.errors += text));
  child.ended = new Promise((resolve) => child.once("exit", resolve));
  running.add(child);
  child.ended.then(() => running.delete(child));
  return child;
}
async function stop(child) {
  child.kill("SIGTERM");
  await child.ended;
}

/** A SoupBinTCP client of the plant's multicast, that has logged in; its socket. */
function soupClient() {
  return new Promise((resolve, reject) => {
    const socket = connect(soupbintcp, "127.0.0.1").once("error", reject);
    // Length, type, user, password, session, first message: the present session from its first message on.
    socket.write(Buffer.concat([Buffer.from([0, 47]), Buffer.from(`L${" ".repeat(6)}${" ".repeat(10)}${" ".repeat(10)}${"1".padStart(20)}`)]));
    let got = 0;
    // The answer has a byte of type behind its length.
    socket.on("data", (part) => {
      if (got === 0 && part[2] !== 0x41) reject(new Error(`the login is answered with ${part[2]}`));
      got += part.length;
      if (got > 1000) resolve(socket);
    });
  });
}

/** A client that shows the key and calls itself `name`; its socket. */
function client(name) {
  return new Promise((resolve, reject) => {
    const socket = connect(clients, "127.0.0.1").once("error", reject);
    let text = "";
    const read = (part) => {
      text += part.toString("latin1");
      const challenge = text.match(/cram=([^\n|]+)\n/)?.[1];
      if (challenge && !text.includes("success=")) {
        const hash = createHash("sha256").update(`${challenge}|${KEY}`).digest("hex");
        socket.write(`auth=${hash}-${KEY.slice(-5)}|dataset=TEST.ALL|encoding=dbn|ts_out=0|client=${name}\n`);
      }
      if (text.includes("success=1")) {
        socket.off("data", read);
        socket.resume();
        socket.write("schema=cmbp-1|stype_in=raw_symbol|symbols=ALL_SYMBOLS|is_last=1\nstart_session\n");
        resolve(socket);
      } else if (text.includes("success=0")) reject(new Error(text));
    };
    socket.on("data", read);
  });
}

// ---- the browser

// Playwright wants a path.
const executablePath = execFileSync("sh", ["-c", 'command -v "$0"', option("chromium", "chromium")], { encoding: "utf8" }).trim();
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const faults = [];
/** Faults are expected up to this time. The browser reports an attempt that failed some time after it. */
let expectedUntil = 0;
const expectFaults = () => (expectedUntil = Infinity);
const expectNoFaults = () => (expectedUntil = Date.now() + 3000);
async function open(url, settings) {
  const context = await browser.newContext({ viewport: { width: 1500, height: 1100 }, ...settings });
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // While the plant is away the browser logs each attempt to reach it.
    if (message.type() === "error" && Date.now() > expectedUntil) faults.push(`console: ${message.text()}`);
  });
  await page.goto(url);
  return page;
}
const text = (page, selector) => page.locator(selector).innerText();
const cutOff = (page) => page.locator("#depth td:is(.bid, .ask)").evaluateAll((cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).length);
const shot = (page, name) => page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
const until = (page, what, argument) => page.waitForFunction(what, argument);
const says = (page, selector, wanted) =>
  until(page, ([selector, wanted]) => document.querySelector(selector)?.textContent === wanted, [selector, wanted]);

const steps = [];
async function step(name, run) {
  try {
    await run();
    steps.push(name);
    console.log(`${name}: as it should be`);
  } catch (error) {
    throw new Error(`${name}: ${error.message}`, { cause: error });
  }
}

async function main() {
  let plant = run("plant", plantFile);
  const url = `http://127.0.0.1:${web}/`;
  await until_up(url, plant);
  const page = await open(url, { colorScheme: "dark" });

  await step("nothing heard yet", async () => {
    await says(page, "#state", "waiting");
    assert.equal(await page.isVisible("#venues-empty"), true);
    assert.equal(await page.isVisible("#symbols-empty"), true);
    assert.match(await text(page, "#book-panel"), /Choose a symbol/);
    assert.equal(await page.locator("#venues tbody tr").count(), venues.length);
    await shot(page, "empty");
  });

  const exchange = run("exchange", "serve", exchangeFile);
  await step("venues are heard", async () => {
    await says(page, "#state", "live");
    await until(page, () => document.querySelectorAll("#symbols tbody tr").length > 20);
    // Until no more symbols appear, which would move the others.
    for (let [before, now] = ["", "?"]; before !== now; [before, now] = [now, await text(page, "#symbol-count")]) await page.waitForTimeout(1500);
    assert.equal(await page.isVisible("#venues-empty"), false);
    assert.match(await text(page, "#symbols-panel h2"), /Synthetic NBBO/);
    await until(page, () => Number.parseFloat(document.querySelector("#message-rate").textContent) > 0);
    await until(page, () => /[µm]?s$/.test(document.querySelector("#delay-p99").textContent));
    assert.equal(await page.locator("#delays canvas").count(), 1);
  });

  await step("a click chooses", async () => {
    // Symbols that appear meanwhile move the others: its name identifies it.
    const symbol = await page.locator("#symbols tbody tr").nth(3).getAttribute("data-key");
    await page.click(`#symbols tr[data-key="${symbol}"]`);
    await says(page, "#book-symbol", symbol);
    await until(page, () => document.querySelectorAll("#depth tbody tr").length === 10);
    await until(page, () => /\d/.test(document.querySelector("#bid").textContent) && document.querySelector("#bid-venues").textContent !== "");
    assert.equal(new URL(page.url()).hash, `#${symbol}`);
    // Another symbol's levels are never shown below its name.
    const [name, levels] = await page.evaluate((symbol) => {
      [...document.querySelectorAll("#symbols tbody tr")].findLast((row) => row.dataset.key !== symbol).click();
      return [document.querySelector("#book-symbol").textContent, getComputedStyle(document.querySelector("#depth")).display];
    }, symbol);
    assert.notEqual(name, symbol);
    assert.equal(levels, "none");
    await until(page, () => document.querySelectorAll("#depth tbody tr").length === 10 && !document.querySelector("#depth").hidden);
    assert.equal(await cutOff(page), 0, "no price or size is cut off");
  });

  await step("the keyboard finds and chooses", async () => {
    const symbols = await page.locator("#symbols tbody tr").evaluateAll((rows) => rows.map((row) => row.dataset.key));
    const letter = symbols.map((symbol) => symbol[0]).find((first, at, all) => all.filter((other) => other === first).length > 2);
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    await page.keyboard.type(letter.toLowerCase());
    await until(page, (letter) => {
      const rows = [...document.querySelectorAll("#symbols tbody tr")];
      return rows.length > 0 && rows[0].dataset.key.startsWith(letter) && rows.every((row) => row.dataset.key.includes(letter));
    }, letter);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowUp");
    const wanted = await page.locator("#symbols tbody tr").nth(1).getAttribute("data-key");
    assert.equal(await page.locator("#symbols tr.at").getAttribute("data-key"), wanted);
    await page.keyboard.press("Enter");
    await says(page, "#book-symbol", wanted);
    // As fast as one types: Enter is about what was typed, not about what was listed before.
    await page.keyboard.press("/");
    await page.keyboard.type(symbols.at(-1));
    await page.keyboard.press("Enter");
    await says(page, "#book-symbol", symbols.at(-1));
    await page.keyboard.press("/");
    await page.fill("#search", "ZZZZZZZZ");
    await says(page, "#symbols-empty", "No symbol matches.");
    await page.keyboard.press("Escape");
    await until(page, () => document.querySelectorAll("#symbols tbody tr").length > 20);
  });

  await step("numbers as people read them", async () => {
    const read = await page.evaluate(async () => {
      const { bytes, delay, short, span, spread } = await import("/format.js");
      return [spread("10.00", "9.99"), spread("0.0001", "0.0002"), spread("-1.50", "1.25"), spread("9007199254.740993", "0.00"), short(999), short(12345), short(4560000), delay(999), delay(1500), delay(123456789), bytes(2500), span(61), span(90061)];
    });
    assert.deepEqual(read, ["0.01", "-0.0001", "-2.75", "9007199254.740993", "999", "12.3k", "4.56M", "999 ns", "1.50 µs", "123 ms", "2.50 kB", "1m 01s", "1d 01h"]);
  });

  await step("depth by venue", async () => {
    await page.click("#by-venue");
    await until(page, () => document.querySelectorAll("#depth table").length >= 2);
    assert.equal(await page.locator("#depth table").first().locator("tbody tr").count(), 10);
    assert.equal(await cutOff(page), 0, "no price or size is cut off");
    await shot(page, "by-venue");
    await page.click("#merged");
    await until(page, () => document.querySelectorAll("#depth table").length === 1);
  });

  await step("a client shows, and its name is only text", async () => {
    const name = "<img src=x onerror=alert(1)><b>bold</b>";
    const socket = await client(name);
    await until(page, () => /live/.test(document.querySelector("#clients tbody")?.textContent ?? ""));
    const row = page.locator("#clients tbody tr").first();
    const shown = await row.innerText();
    assert.match(shown, /tester/);
    assert.match(shown, /cmbp-1/);
    assert.ok(shown.includes("<b>bold") || shown.includes("<img"), shown);
    assert.equal(await page.locator("#clients img, #clients b").count(), 0);
    await shot(page, "dark");
    socket.destroy();
    await until(page, () => document.querySelectorAll("#clients tbody tr").length === 0);
    assert.equal(await page.isVisible("#clients-empty"), true);
  });

  await step("what goes out and what is kept shows", async () => {
    assert.equal(await page.isVisible("#outputs-empty"), false);
    assert.equal(await page.isVisible("#questdb"), false, "what is not configured is not there");
    await until(page, () => Number.parseFloat(document.querySelector("#multicast-rate").textContent) > 0);
    assert.match(await text(page, "#multicast-session"), /^session \w{10}$/);
    assert.equal(await page.getAttribute("#multicast-state", "class"), "dot good");
    assert.match(await text(page, "#multicast-packets"), /^[\d,]+, [\d.]+ [kMG]?B$/);
    assert.equal(await text(page, "#multicast-unsent"), "0, 0");
    assert.equal(await text(page, "#multicast-clients"), "0 of 0 so far");
    const socket = await soupClient();
    await says(page, "#multicast-clients", "1 of 1 so far");
    socket.destroy();
    await says(page, "#multicast-clients", "0 of 1 so far");
    // A request for messages of another session is refused, and seen.
    const client = createSocket("udp4");
    const request = Buffer.concat([Buffer.from("NOSUCHONE "), Buffer.from([0, 0, 0, 0, 0, 0, 0, 1, 0, 1])]);
    await new Promise((resolve) => client.send(request, retransmission, "127.0.0.1", resolve));
    client.close();
    await says(page, "#multicast-refused", "1");
    assert.equal(await page.getAttribute("#multicast-refused", "class"), "warn");
    await until(page, () => Number(document.querySelector("#snapshots-written").textContent) > 2);
    assert.equal(await text(page, "#snapshots-every"), "every 500 ms");
    assert.match(await text(page, "#snapshots-age"), /^0m 0\ds ago$/);
    assert.match(await text(page, "#snapshots-bytes"), /^[\d.]+ [kM]B$/);
    assert.match(await text(page, "#snapshots-pause"), /^[\d.]+ [nµm]s$/);
    assert.equal(await text(page, "#snapshots-failed"), "0, 0");
    assert.equal(await text(page, "#snapshots-restored"), "the first record");
    assert.equal(await page.getAttribute("#snapshots-state", "title"), "written in time");
    assert.equal(await text(page, "#roll-done"), "0");
    assert.equal(await page.getAttribute("#roll-state", "title"), "nothing is left to do");
    for (const part of ["multicast", "snapshots", "roll"]) assert.equal(await page.isVisible(`#${part}-error`), false);
    const cut = await page.locator("#outputs-panel dd").evaluateAll((facts) => facts.filter((fact) => fact.scrollWidth > fact.clientWidth).map((fact) => fact.id));
    assert.deepEqual(cut, [], "no fact is cut off");
  });

  await step("nothing jumps", async () => {
    const shift = await page.evaluate(
      () =>
        new Promise((resolve) => {
          let sum = 0;
          new PerformanceObserver((list) => list.getEntries().forEach((entry) => (sum += entry.value))).observe({ type: "layout-shift" });
          setTimeout(() => resolve(sum), 3000);
        }),
    );
    assert.ok(shift < 0.02, `layout shift of ${shift}`);
  });

  await step("dark and light", async () => {
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const system = await ground();
    await page.click("#theme");
    assert.equal(await text(page, "#theme"), "theme: dark");
    assert.equal(await ground(), system);
    await page.click("#theme");
    assert.equal(await text(page, "#theme"), "theme: light");
    const light = await ground();
    assert.notEqual(light, system);
    await page.reload();
    assert.equal(await ground(), light);
    await says(page, "#state", "live");
    assert.match(await text(page, "#book-symbol"), /^[A-Z]+$/, "the symbol is in the address");
    await until(page, () => document.querySelectorAll("#depth tbody tr").length === 10);
    await shot(page, "light");
  });

  await step("a phone's width", async () => {
    const phone = await open(page.url(), { viewport: { width: 390, height: 844 }, colorScheme: "light", isMobile: true, hasTouch: true });
    await says(phone, "#state", "live");
    await until(phone, () => document.querySelectorAll("#depth tbody tr").length === 10);
    const [wide, window] = await phone.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= window, `${wide} px wide in ${window}`);
    await until(phone, () => !document.querySelector("#multicast").hidden);
    const cut = await phone.locator("#outputs-panel dd").evaluateAll((facts) => facts.filter((fact) => fact.scrollWidth > fact.clientWidth).map((fact) => fact.id));
    assert.deepEqual(cut, [], "no fact is cut off");
    await phone.locator("#symbols tbody tr").nth(1).tap();
    await until(phone, () => document.querySelector("#symbols tr.chosen")?.dataset.key === document.querySelector("#book-symbol").textContent);
    await until(phone, () => !document.querySelector("#depth").hidden);
    assert.equal(await cutOff(phone), 0, "no price or size is cut off");
    await shot(phone, "phone");
    await phone.context().close();
  });

  await step("the plant goes, and the last values stay", async () => {
    expectFaults();
    await stop(plant);
    await says(page, "#state", "disconnected");
    assert.equal(await page.isVisible("#alert"), true);
    assert.match(await text(page, "#alert"), /does not answer/);
    assert.equal(await page.evaluate(() => document.body.classList.contains("gone")), true);
    assert.ok((await page.locator("#symbols tbody tr").count()) > 20);
    await shot(page, "gone");
  });

  await step("the plant is back, and so is the page", async () => {
    plant = run("plant", plantFile);
    await says(page, "#state", "live");
    assert.equal(await page.evaluate(() => document.body.classList.contains("gone")), false);
    await until(page, () => document.querySelector("#alert").hidden);
    await until(page, () => /^record [\d,]+$/.test(document.querySelector("#snapshots-restored").textContent));
    await until(page, () => document.querySelectorAll("#depth tbody tr").length === 10);
    expectNoFaults();
  });

  await step("the page requires its token", async () => {
    const other = run("plant", lockedFile);
    const door = `http://127.0.0.1:${locked}/`;
    await until_up(door, other);
    expectFaults();
    const page = await open(door);
    assert.equal(new URL(page.url()).pathname, "/login");
    await page.fill("#token", "guess");
    await page.click("button");
    assert.match(await text(page, ".wrong"), /not the token/);
    await page.fill("#token", TOKEN);
    await page.keyboard.press("Enter");
    await says(page, "#state", "waiting");
    await until(page, () => document.querySelector("#version").textContent !== "");
    assert.equal(await page.isVisible("#outputs-empty"), true);
    for (const part of ["multicast", "questdb", "nats", "kafka", "aeron", "snapshots", "roll"]) assert.equal(await page.isVisible(`#${part}`), false);
    expectNoFaults();
    await page.context().close();
    await stop(other);
  });

  await page.context().close();
  await stop(exchange);
  await stop(plant);
  assert.deepEqual(faults, [], "the browser complains");
}

async function until_up(url, child) {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    if (child.exitCode !== null) throw new Error(`the plant ended: ${child.errors}`);
    try {
      if ((await fetch(`${url}health`)).ok) return;
    } catch {
      // Not yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`nobody answers at ${url}: ${child.errors}`);
}

let code = 0;
try {
  await main();
  console.log(`${steps.length} things that one does with the page work; screenshots are in ${folder}`);
} catch (error) {
  console.error(`error: ${error.message}`);
  faults.forEach((fault) => console.error(`  ${fault}`));
  code = 1;
}
await browser.close();
running.forEach((child) => child.kill("SIGKILL"));
process.exit(code);
