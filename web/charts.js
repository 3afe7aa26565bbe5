// The curves: delays by percentile, and messages, over the last ten minutes.

import { delay, short } from "./format.js";

const KEPT = 600;

/** What a style sheet says of a colour now. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Charts {
  constructor(delays, rates) {
    this.boxes = { delays, rates };
    // Time in seconds, p50, p99, p99.9 and the longest in ns; messages.
    this.data = [[], [], [], [], [], []];
    this.charts = [];
    this.draw();
    const resize = new ResizeObserver(() => this.resize());
    resize.observe(delays);
    resize.observe(rates);
  }

  /** Draws all anew: at the start, and when the colours change. */
  draw() {
    this.charts.forEach((chart) => chart.destroy());
    const [text, grid] = [colour("--quiet"), colour("--line")];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui" };
    const series = (label, name, value, width = 1.5) => ({ label, stroke: colour(name), width, value: (_, number) => value(number), points: { show: false } });
    const base = (box) => ({
      width: Math.max(200, box.clientWidth),
      cursor: { y: false, sync: { key: "plant" }, drag: { x: false, y: false } },
      legend: { live: true },
    });
    const time = (_, seconds) => (seconds === null ? "–" : new Date(seconds * 1000).toLocaleTimeString("en-GB"));
    const { delays, rates } = this.boxes;
    this.charts = [
      new uPlot(
        {
          ...base(delays),
          height: 176,
          scales: { y: { distr: 3, log: 10 } },
          axes: [
            { ...axis, show: false },
            { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => (tick && Number.isInteger(Math.log10(tick)) ? delay(tick) : "")) },
          ],
          series: [{ label: "at", value: time }, series("p50", "--good", delay), series("p99", "--bid", delay), series("p99.9", "--warn", delay), series("max", "--bad", delay, 1)],
        },
        this.data.slice(0, 5),
        delays,
      ),
      new uPlot(
        {
          ...base(rates),
          height: 88,
          legend: { show: false },
          axes: [
            { ...axis, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB")), space: 80, size: 28 },
            { ...axis, size: 62, space: 26, values: (_, ticks) => ticks.map((tick) => `${short(tick)}/s`) },
          ],
          series: [{ label: "at", value: time }, { ...series("messages/s", "--quiet", short), fill: colour("--hover") }],
        },
        [this.data[0], this.data[5]],
        rates,
      ),
    ];
  }

  resize() {
    this.charts.forEach((chart) => {
      const width = chart.root.parentElement.clientWidth;
      if (width > 0 && width !== chart.width) chart.setSize({ width, height: chart.height });
    });
  }

  /** A plant that began anew: nothing of before. */
  clear() {
    this.data.forEach((column) => column.splice(0));
  }

  /** More points: time in ms, messages, then delays in ns. */
  add(points) {
    if (points.length === 0) return;
    for (const [time, messages, ...delays] of points) {
      const quiet = messages === 0;
      this.data[0].push(time / 1000);
      delays.forEach((nanoseconds, at) => this.data[at + 1].push(quiet ? null : Math.max(1, nanoseconds)));
      this.data[5].push(messages);
    }
    this.data.forEach((column) => column.splice(0, Math.max(0, column.length - KEPT)));
    const [delays, rates] = this.charts;
    delays.setData(this.data.slice(0, 5));
    rates.setData([this.data[0], this.data[5]]);
    this.showLast();
  }

  /** The legend shows the last second unless the pointer is on another. */
  showLast() {
    const [delays] = this.charts;
    if (delays.cursor.left < 0 || delays.cursor.left === undefined) delays.setLegend({ idx: this.data[0].length - 1 });
  }
}
