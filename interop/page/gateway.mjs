// The gateway's page in a real browser: an exchange, a gateway, FIX orders, Chromium, and the kill switch pressed by mouse.
//
//   node gateway.mjs --tapeworks PROGRAM --work FOLDER [--chromium PROGRAM]
//
// Screenshots are left in FOLDER. Exits with 1 and a line for what is not as it should be.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { chromium } from "playwright-core";

const option = (name, otherwise) => {
  const place = process.argv.indexOf(`--${name}`);
  return place > 0 ? process.argv[place + 1] : otherwise;
};
const [program, work] = [option("tapeworks"), option("work")];
const folder = join(work, "gateway-page");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
const [realTime, recovery, fix, web] = [await freePort(), await freePort(), await freePort(), await freePort()];
const TOKEN = "open, please";

writeFileSync(
  join(folder, "orders.toml"),
  `[[orders]]
name = "Exchange"
real_time = "127.0.0.1:${realTime}"
recovery = "127.0.0.1:${recovery}"
throttle_per_second = 0
[[orders.user]]
name = "TW01"
password = "password"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
`,
);
writeFileSync(
  join(folder, "gateway.toml"),
  `listen = "127.0.0.1:${fix}"
[store]
folder = "${join(folder, "store")}"
[venue]
protocol = "millennium"
real_time = "127.0.0.1:${realTime}"
recovery = "127.0.0.1:${recovery}"
user = "TW01"
password = "password"
throttle_per_second = 0
[[instrument]]
symbol = "AAPL"
id = 1
[[client]]
name = "alpha"
comp_id = "ALPHA"
[[client]]
name = "beta"
comp_id = "BETA"
[web]
address = "127.0.0.1:${web}"
token = "${TOKEN}"
`,
);
writeFileSync(join(folder, "orders.txt"), "new AAPL buy 100 @99.5\nwait 1h\n");

const running = [];
const start = (...words) => running.push(spawn(program, words, { stdio: "ignore" }));
let browser;
let done = 0;
const step = async (name, work) => {
  await work();
  done += 1;
  console.log(`${name}: as it should be`);
};

try {
  start("exchange", "serve", join(folder, "orders.toml"));
  start("gateway", join(folder, "gateway.toml"));
  const executablePath = execFileSync("sh", ["-c", 'command -v "$0"', option("chromium", "chromium")], { encoding: "utf8" }).trim();
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const context = await browser.newContext({ viewport: { width: 1500, height: 900 }, colorScheme: "dark" });
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  const shows = (selector, text) =>
    page.waitForFunction(([selector, text]) => document.querySelector(selector)?.textContent.includes(text), [selector, text], { timeout: 20000 });
  const shot = (name) => page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });

  for (let tries = 0; ; tries++) {
    try {
      await page.goto(`http://127.0.0.1:${web}/`);
      break;
    } catch (error) {
      if (tries > 50) throw error;
      await page.waitForTimeout(200);
    }
  }
  await step("the page requires its token", async () => {
    assert.ok(page.url().endsWith("/login"));
    await page.fill("#token", TOKEN);
    await page.click("button[type=submit]");
    await shows("#state", "ready");
  });
  start("fix", `127.0.0.1:${fix}`, "--comp-id", "BETA", "--script", join(folder, "orders.txt"));
  start("fix", `127.0.0.1:${fix}`, "--comp-id", "ALPHA", "--rate", "100", "--seconds", "1h");
  await step("sessions, orders and round trips are shown", async () => {
    await shows("#logged-on", "2 of 2");
    await shows("#orders", "99.50");
    await shows("#trip-p50", "s");
    await page.waitForTimeout(3000);
    await shot("dark");
  });
  await step("the answer no halts nothing", async () => {
    await page.click("#halt");
    await page.keyboard.press("Escape");
    await page.waitForTimeout(1500);
    await shows("#state", "ready");
  });
  await step("one client is halted, and resumed", async () => {
    await page.click("[aria-label='halt beta']");
    await page.click("#confirm-yes");
    await shows("#sessions", "halted");
    await shows("#state", "ready");
    await page.click("[aria-label='resume beta']");
    await page.click("#confirm-yes");
    await page.waitForSelector("[aria-label='halt beta']");
  });
  await step("all are halted and their orders cancelled", async () => {
    await page.click("#halt");
    await page.check("#confirm-cancel");
    await shot("confirm");
    await page.click("#confirm-yes");
    await shows("#state", "halted");
    await shows("#open-orders", "0");
    await shot("halted");
    await page.click("#halt");
    await page.click("#confirm-yes");
    await shows("#state", "ready");
  });
  await step("light, and a phone's width", async () => {
    await page.emulateMedia({ colorScheme: "light" });
    await shot("light");
    await page.setViewportSize({ width: 390, height: 800 });
    await page.waitForTimeout(1500);
    await shot("phone");
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `the page is ${width} wide`);
  });
  await step("no script fails", async () => assert.deepEqual(problems, []));
  console.log(`${done} things that one does with the gateway's page work; screenshots are in ${folder}`);
} catch (error) {
  console.error(`after ${done} steps: ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser?.close();
  running.forEach((child) => child.kill());
}
