// Numbers as people read them.

const grouped = new Intl.NumberFormat("en-US");

/** A count, with thousands apart. */
export function count(number) {
  return number === null || number === undefined ? "–" : grouped.format(number);
}

/** A count in few letters: 950, 12.3k, 4.56M. */
export function short(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size < 1000) return String(Math.round(number));
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${(number / unit).toPrecision(3)}${letter}`;
  }
  return String(number);
}

/** A venue in few letters: of a group's venues, the part that distinguishes them. */
export function venueName(name) {
  return name?.replace(/^Nasdaq (?=.)/, "") ?? "–";
}

/** Bytes. */
export function bytes(number) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (number >= unit) return `${(number / unit).toPrecision(3)} ${name}`;
  }
  return `${Math.round(number)} B`;
}

/** Nanoseconds in the unit that fits. */
export function delay(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined) return "–";
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (nanoseconds >= unit) {
      const number = nanoseconds / unit;
      return `${number >= 100 ? Math.round(number) : number.toPrecision(3)} ${name}`;
    }
  }
  return `${Math.round(nanoseconds)} ns`;
}

/** Seconds as a time span. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  const two = (number) => String(number).padStart(2, "0");
  if (days > 0) return `${days}d ${two(hours)}h`;
  return hours > 0 ? `${hours}h ${two(minutes)}m` : `${minutes}m ${two(whole % 60)}s`;
}

/** The difference of two prices that are decimals, without a float's rounding. */
export function spread(ask, bid) {
  const units = (price) => {
    const [whole, fraction = ""] = price.replace("-", "").split(".");
    const size = BigInt(whole) * 1000000000n + BigInt(fraction.padEnd(9, "0"));
    return price.startsWith("-") ? -size : size;
  };
  const difference = units(ask) - units(bid);
  const size = difference < 0n ? -difference : difference;
  const fraction = String(size % 1000000000n).padStart(9, "0").replace(/0{1,7}$/, "");
  return `${difference < 0n ? "-" : ""}${size / 1000000000n}.${fraction}`;
}

/** Rates of counters: what came since about a second ago, for each second. */
export class Rates {
  constructor() {
    this.kept = new Map();
  }

  /** The rate of the counter `name`, which stands at `value` at `time` in seconds. */
  of(name, value, time) {
    let points = this.kept.get(name);
    const last = points?.at(-1);
    if (!last || value < last.value || time < last.time) {
      points = [];
      this.kept.set(name, points);
    }
    if (points.at(-1)?.time !== time) points.push({ value, time });
    while (points.length > 2 && time - points[1].time >= 1) points.shift();
    const first = points[0];
    return time > first.time ? (value - first.value) / (time - first.time) : null;
  }
}
