// What goes out beside the clients, and what is kept: multicast, QuestDB, NATS, Kafka, Aeron, traces, checkpoints, the daily roll.

import { bytes, count, delay, short, span } from "./format.js";
import { dress, write } from "./rows.js";

const byId = (id) => document.getElementById(id);

/** Writes a fact, in `kind` when something is wrong. */
function fact(id, text, kind = "") {
  write(byId(id), text);
  dress(byId(id), kind);
}

/** Several counts, in `kind` when one of them is not 0. */
function counts(id, numbers, kind) {
  fact(id, numbers.map(count).join(", "), numbers.some((number) => number > 0) ? kind : "");
}

/** How it is with an output, as the dot before its name; for those who see no colours also as its title. */
function state(id, kind, words) {
  dress(byId(id), `dot ${kind}`);
  if (byId(id).title !== words) byId(id).title = words;
}

function why(id, text) {
  byId(id).hidden = !text;
  if (text) write(byId(id), text);
}

export function showOutputs(status, rates) {
  const { multicast, questdb, nats, kafka, aeron, otel, roll, checkpoints: snapshots } = status;
  const parts = [
    ["multicast", Boolean(multicast)],
    ["questdb", Boolean(questdb)],
    ["nats", Boolean(nats)],
    ["kafka", Boolean(kafka)],
    ["aeron", Boolean(aeron)],
    ["otel", Boolean(otel)],
    ["snapshots", snapshots.every_ns !== null],
    ["roll", roll.is_on],
  ];
  for (const [id, isOn] of parts) byId(id).hidden = !isOn;
  byId("outputs-empty").hidden = parts.some(([, isOn]) => isOn);
  const now = status.now_ns / 1e9;
  if (multicast) showMulticast(multicast, rates, now);
  if (questdb) showQuestDb(questdb, rates, now);
  if (nats) showNats(nats, rates, now);
  if (kafka) showKafka(kafka, rates, now);
  if (aeron) showAeron(aeron, rates, now);
  if (otel) showTraces(otel, rates, now);
  if (snapshots.every_ns !== null) showSnapshots(snapshots, status, now);
  if (roll.is_on) showRoll(roll);
}

function showMulticast(multicast, rates, now) {
  const unsent = multicast.unsent + multicast.unsent_answers;
  const isLive = multicast.next > 1;
  if (unsent > 0) state("multicast-state", "bad", "packets were not taken by the system");
  else state("multicast-state", isLive ? "good" : "faint", isLive ? "sending" : "nothing to send yet");
  write(byId("multicast-session"), `session ${multicast.session}`);
  fact("multicast-rate", short(rates.of("multicast messages", multicast.messages, now)));
  fact("multicast-byte-rate", `${bytes(rates.of("multicast bytes", multicast.bytes, now) ?? 0)}/s`);
  fact("multicast-messages", count(multicast.messages));
  fact("multicast-packets", `${count(multicast.packets)}, ${bytes(multicast.bytes)}`);
  fact("multicast-requests", `${count(multicast.requests)}, ${count(multicast.answers)}`);
  counts("multicast-refused", [multicast.refused_requests], "warn");
  fact("multicast-clients", `${count(multicast.clients)} of ${count(multicast.connections)} so far`);
  const rejected = multicast.refused_connections + multicast.rejected_logins + multicast.malformed_clients;
  counts("multicast-slow", [multicast.slow_clients, rejected], "warn");
  counts("multicast-unsent", [unsent, multicast.too_long], "bad");
  fact("multicast-lag", short(multicast.ring_lag));
  why("multicast-error", multicast.error);
}

function showQuestDb(questdb, rates, now) {
  const isAgain = questdb.sending_again !== null;
  if (!questdb.is_connected && questdb.error) state("questdb-state", "bad", "the server takes no rows");
  else if (!questdb.is_connected) state("questdb-state", "faint", "nothing was sent yet");
  else state("questdb-state", isAgain || questdb.to_send_again ? "warn" : "good", "the server takes rows");
  const left = isAgain ? questdb.sending_again[1] - questdb.sending_again[0] : 0;
  write(byId("questdb-doing"), isAgain ? `${short(left)} events are sent again from the journal` : questdb.to_send_again ? "rows are to be sent again from the journal" : "");
  fact("questdb-rate", short(rates.of("questdb", questdb.rows, now)));
  fact("questdb-rows", count(questdb.rows));
  fact("questdb-waiting", `${count(questdb.waiting)}, ${bytes(questdb.waiting_bytes)}`);
  fact("questdb-lost", `${count(questdb.overflowed)}, ${count(questdb.lost)}`, questdb.lost > 0 ? "bad" : questdb.overflowed > 0 ? "warn" : "");
  counts("questdb-refused", [questdb.refused, questdb.unreadable], "bad");
  counts("questdb-failures", [questdb.failures, questdb.reconnects], "warn");
  fact("questdb-lag", short(questdb.ring_lag));
  why("questdb-error", questdb.is_connected ? "" : questdb.error);
}

function showAeron(aeron, rates, now) {
  const dropped = aeron.dropped_slow + aeron.dropped_full + aeron.refused;
  if (aeron.is_connected) state("aeron-state", dropped > 0 ? "warn" : "good", "the media driver takes messages");
  else state("aeron-state", aeron.error ? "bad" : "faint", aeron.error ? "there is no media driver" : "nothing was sent yet");
  fact("aeron-rate", short(rates.of("aeron", aeron.items, now)));
  fact("aeron-items", `${count(aeron.items)}, ${count(aeron.messages)}`);
  fact("aeron-streams", `${count(aeron.read_streams)} of ${count(aeron.streams)}`);
  fact("aeron-unread", count(aeron.unread));
  fact("aeron-waiting", count(aeron.waiting));
  counts("aeron-dropped", [aeron.dropped_slow, aeron.dropped_full, aeron.refused], "warn");
  fact("aeron-replays", `${count(aeron.replays)}, ${count(aeron.replayed)}`);
  counts("aeron-failures", [aeron.failures, aeron.refused_replays, aeron.failed_replays], "warn");
  why("aeron-error", aeron.error);
}

function showKafka(kafka, rates, now) {
  if (kafka.is_connected) state("kafka-state", kafka.lost_events > 0 ? "warn" : "good", "the brokers take records");
  else state("kafka-state", kafka.error ? "bad" : "faint", kafka.error ? "the brokers take no records" : "nothing was sent yet");
  fact("kafka-rate", short(rates.of("kafka", kafka.records, now)));
  fact("kafka-records", `${count(kafka.records)}, ${count(kafka.transactions)}`);
  fact("kafka-waiting", count(kafka.waiting));
  fact("kafka-lag", `${count(kafka.lag_events)} events, ${(kafka.lag_ns / 1e9).toFixed(1)} s`);
  counts("kafka-lost", [kafka.lost_events], "bad");
  counts("kafka-failures", [kafka.aborted, kafka.failures], "warn");
  why("kafka-error", kafka.error);
}

function showNats(nats, rates, now) {
  if (!nats.is_connected) state("nats-state", nats.error ? "bad" : "faint", "there is no connection to a server");
  else state("nats-state", nats.error ? "warn" : "good", nats.is_storing ? "connected; JetStream keeps the last NBBOs" : "connected");
  fact("nats-rate", short(rates.of("nats", nats.records, now)));
  fact("nats-records", `${count(nats.records)}, ${count(nats.stored)}`);
  fact("nats-waiting", `${count(nats.waiting)}, ${count(nats.in_flight)}`);
  counts("nats-dropped", [nats.conflated, nats.dropped_trades + nats.dropped_gaps], "warn");
  counts("nats-lost", [nats.unconfirmed, nats.lost], "warn");
  counts("nats-failures", [nats.failures, nats.store_failures, nats.refused], "warn");
  why("nats-error", nats.error);
}

function showTraces(otel, rates, now) {
  if (!otel.is_connected) state("otel-state", otel.error ? "bad" : "faint", "the collector takes nothing");
  else state("otel-state", otel.error ? "warn" : "good", "the collector takes traces");
  fact("otel-rate", short(rates.of("otel", otel.spans, now)));
  fact("otel-traces", `${count(otel.traces)}, ${count(otel.spans)}`);
  fact("otel-waiting", count(otel.waiting));
  counts("otel-dropped", [otel.dropped, otel.unfollowed], "warn");
  counts("otel-failures", [otel.refused_spans, otel.failures], "warn");
  why("otel-error", otel.error);
}

function showSnapshots(snapshots, status, now) {
  const every = snapshots.every_ns / 1e9;
  const written = snapshots.time_ns / 1e9;
  // Before the first, the time since the start is what counts.
  const age = Math.max(0, now - (written || status.started_ns / 1e9));
  const isLate = status.has_replayed && age > 3 * every + 5;
  const [kind, words] = isLate ? ["bad", "overdue"] : snapshots.failed > 0 ? ["warn", "some could not be written"] : written ? ["good", "written in time"] : ["faint", "none was written yet"];
  state("snapshots-state", kind, words);
  write(byId("snapshots-every"), `every ${every < 1 ? delay(snapshots.every_ns) : span(every)}`);
  fact("snapshots-age", written ? `${span(age)} ago` : "none yet", isLate ? "bad" : "");
  fact("snapshots-bytes", written ? bytes(snapshots.bytes) : "–");
  const pauses = [snapshots.pause_ns, snapshots.books_pause_ns].filter((pause) => pause > 0);
  fact("snapshots-pause", pauses.map(delay).join(", ") || "–");
  fact("snapshots-written", count(snapshots.written));
  fact("snapshots-failed", `${count(snapshots.failed)}, ${count(snapshots.skipped)}`, snapshots.failed > 0 ? "bad" : snapshots.skipped > 0 ? "warn" : "");
  fact("snapshots-restored", snapshots.restored_record === null ? "the first record" : `record ${count(snapshots.restored_record)}`);
  why("snapshots-error", [snapshots.error, ...snapshots.refused.map((refused) => `not used: ${refused}`)].filter(Boolean).join("; "));
}

function showRoll(roll) {
  const failed = roll.done.filter((day) => day.error !== null);
  const made = roll.done.filter((day) => day.error === null);
  const last = made.at(-1);
  const partial = made.filter((day) => day.from_ns !== null);
  const [kind, words] = failed.length > 0 ? ["bad", "days could not be rolled"] : roll.running ? ["warn", "making files"] : partial.length > 0 ? ["warn", "days without their beginning"] : ["good", "nothing is left to do"];
  state("roll-state", kind, words);
  write(byId("roll-running"), roll.running ? `${roll.running.date}: ${short(roll.running.inputs)} inputs` : "");
  fact("roll-done", count(made.length));
  counts("roll-failed", [failed.length], "bad");
  fact("roll-last", last ? `${last.date}, ${count(last.files)} files` : "–");
  fact("roll-records", last ? count(last.records) : "–");
  const begins = partial.map((day) => `${day.date} begins at ${new Date(day.from_ns / 1e6).toISOString()}: earlier records were removed`);
  why("roll-error", [...failed.map((day) => `${day.date}: ${day.error}`), ...begins].join("; "));
}
