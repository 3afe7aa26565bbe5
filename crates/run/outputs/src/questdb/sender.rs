//! The thread that makes rows of records and sends them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dbn::decode::dbn::RecordDecoder;
use questdb::ingress::{Buffer, TableName};
use tapeworks_market::Symbol;

use super::QuestDbSetting;
use super::database::{Database, NotTaken};
use super::queue::{Chunk, Next, Origin, Queue, REPORT_EVERY};
use super::rows;
use tapeworks_engine::replica::{SCHEMAS, place_of};

/// Maximum number of rows per request.
const MOST_ROWS: usize = 20_000;

/// How often rows are sent to a healthy server that rejects them.
const TRIES: u32 = 5;

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Sending {
    queue: Arc<Queue>,
    setting: QuestDbSetting,
    database: Database,
    buffer: Buffer,
    names: Vec<Option<Symbol>>,
    /// For each origin and schema: the event of the last record, and that record's place among the event's records.
    parts: [[(u64, u32); SCHEMAS]; 2],
    has_tables: bool,
    has_connected: bool,
    pause: Duration,
    published: Instant,
}

impl Sending {
    pub(super) fn new(queue: Arc<Queue>, setting: QuestDbSetting, database: Database) -> Self {
        let buffer = database.buffer();
        Self {
            queue,
            setting,
            database,
            buffer,
            names: Vec::new(),
            parts: [[(u64::MAX, 0); SCHEMAS]; 2],
            has_tables: false,
            has_connected: false,
            pause: FIRST_PAUSE,
            published: Instant::now(),
        }
    }

    pub(super) fn run(mut self) {
        // Connects before there is anything to send, so that errors show early.
        while !self.has_tables && !self.connect() {
            if !self.rest() {
                break;
            }
        }
        loop {
            self.publish();
            match self.queue.take(REPORT_EVERY) {
                Next::Chunk(chunk) => {
                    let unsent = self.send(&chunk);
                    self.queue.done(&chunk, unsent);
                }
                Next::Nothing => {}
                Next::End => break,
            }
        }
        self.queue.give_up();
        self.queue.publish();
    }

    fn publish(&mut self) {
        if self.published.elapsed() >= REPORT_EVERY {
            self.published = Instant::now();
            self.queue.publish();
        }
    }

    /// Waits before the next attempt, longer each time. Returns `false` when there is nothing more to send.
    fn rest(&mut self) -> bool {
        self.queue.publish();
        let pause = self.pause;
        self.pause = (pause * 2).min(self.setting.longest_pause);
        self.queue.pause(pause)
    }

    /// Creates missing tables.
    fn connect(&mut self) -> bool {
        for schema in &self.setting.schemas {
            let table = rows::table_name(&self.setting.table_prefix, *schema);
            if let Err(error) = self.database.execute(&rows::create_table(&table, *schema)) {
                let error = match error {
                    NotTaken::Away(error) => error,
                    NotTaken::Refused(error) => format!("the table {table} cannot be created: {error}"),
                };
                self.fail(error);
                return false;
            }
        }
        (self.has_tables, self.pause) = (true, FIRST_PAUSE);
        let is_again = std::mem::replace(&mut self.has_connected, true);
        self.queue.progress(|status| {
            status.is_connected = true;
            status.reconnects += u64::from(is_again);
        });
        true
    }

    fn fail(&mut self, error: String) {
        self.has_tables = false;
        self.queue.progress(|status| {
            status.is_connected = false;
            status.failures += 1;
            status.error = Some(error);
        });
    }

    /// Sends a chunk. Returns how many of its rows were neither sent nor rejected.
    fn send(&mut self, chunk: &Chunk) -> u64 {
        self.queue.names(&mut self.names);
        let mut decoder = RecordDecoder::new(chunk.records());
        let table = rows::table_name(&self.setting.table_prefix, chunk.schema);
        let Some(parts) = self.parts.get_mut(chunk.origin as usize) else { return chunk.rows() };
        let Some(part) = parts.get_mut(place_of(chunk.schema)) else { return chunk.rows() };
        let mut last = *part;
        let mut unsent = chunk.rows();
        for items in chunk.items().chunks(MOST_ROWS) {
            self.buffer.clear();
            let (mut made, mut wrong) = (0u64, None);
            for item in items {
                last = if last.0 == item.event { (item.event, last.1 + 1) } else { (item.event, 0) };
                let symbol = self.names.get(item.instrument.index()).and_then(Option::as_ref);
                let row = TableName::new(&table).and_then(|table| {
                    let record = decoder.decode_ref().ok().flatten();
                    let none = || questdb::Error::new(questdb::ErrorCode::InvalidApiCall, "no record");
                    let record = record.ok_or_else(none)?;
                    rows::put(&mut self.buffer, table, chunk.schema, (item, last.1), symbol, record)
                });
                match row {
                    Ok(()) => made += 1,
                    Err(error) => wrong = Some(error),
                }
            }
            let not_made = items.len() as u64 - made;
            if let Some(error) = wrong {
                self.queue.progress(|status| {
                    status.refused += not_made;
                    status.error = Some(format!("no row of a record of {}: {}", chunk.schema, error.msg()));
                });
            }
            if made > 0 && !self.deliver(chunk.origin, made) {
                return unsent - not_made;
            }
            unsent -= items.len() as u64;
        }
        if let Some(part) =
            self.parts.get_mut(chunk.origin as usize).and_then(|parts| parts.get_mut(place_of(chunk.schema)))
        {
            *part = last;
        }
        unsent
    }

    /// Sends the buffer's rows until the server accepts or rejects them. Returns `false` when the time for that is over.
    fn deliver(&mut self, origin: Origin, made: u64) -> bool {
        let mut tries = 0;
        loop {
            if self.has_tables || self.connect() {
                match self.database.send(&self.buffer) {
                    Ok(()) => {
                        self.pause = FIRST_PAUSE;
                        self.queue.progress(|status| {
                            status.rows += made;
                            status.rows_again += if origin == Origin::Journal { made } else { 0 };
                            status.requests += 1;
                        });
                        self.publish();
                        return true;
                    }
                    Err(NotTaken::Away(error)) => self.fail(error),
                    Err(NotTaken::Refused(error)) => {
                        tries += 1;
                        let is_over = tries == TRIES;
                        self.queue.progress(|status| {
                            status.failures += 1;
                            status.error = Some(error);
                            status.refused += if is_over { made } else { 0 };
                        });
                        if is_over {
                            self.pause = FIRST_PAUSE;
                            return true;
                        }
                    }
                }
            }
            if !self.rest() {
                return false;
            }
        }
    }
}
