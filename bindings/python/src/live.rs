//! Records of a running plant.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use dbn::ErrorMsg;
use dbn::enums::ErrorCode;
use pyo3::prelude::*;
use tapeworks_outputs::resume::{Resume, TRY, Taken, WhenRefused, connect_to_one_in};
use tapeworks_outputs::subscriber::{Records as _, SubscribeError, Subscriber, SubscriberOptions, refusal};
use tapeworks_runtime::world::System;
use tapeworks_store::{Prices, ReceivedBatches, Schema, is_market};

use crate::errors::Failure;
use crate::options::prices;
use crate::reader::LOOK;
use crate::record::Record;
use crate::stream::Batch;

/// How long connecting and each answer before the first record may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a live server: see `tapeworks.Live`.
#[pyclass(subclass, module = "tapeworks._native")]
pub(crate) struct Live {
    options: SubscriberOptions,
    /// The servers, one of which serves at a time, and that of the connection.
    addresses: Vec<SocketAddr>,
    at: usize,
    schemas: Vec<Schema>,
    prices: Prices,
    /// None before the first read, and once it is closed or the server has ended it.
    connection: Option<Connected>,
    /// Batches that are complete, the next one last.
    ready: Vec<(Schema, RecordBatch)>,
    current: Option<(Arc<RecordBatch>, usize, Schema)>,
    records: u64,
    resume: Resume,
    is_ended: bool,
    is_refused: bool,
    when_refused: WhenRefused,
    /// A failure whose records come first.
    failed: Option<Failure>,
    /// What the server has said that does not end the session, and why it is about to end it.
    said: Vec<String>,
    reason: Option<String>,
}

/// The lock only says that one thread at a time has it, which `&mut self` makes sure of.
type Connected = Mutex<(Subscriber, ReceivedBatches)>;

enum Came {
    Some,
    Nothing,
    End,
}

impl Live {
    /// Connects to the first server that serves, in a thread of its own, so that an interrupt ends the waiting.
    fn connect(&mut self, py: Python<'_>) -> PyResult<()> {
        let (sender, mut receiver) = sync_channel(1);
        let (options, addresses, at) = (self.options.clone(), self.addresses.clone(), self.at);
        thread::spawn(move || {
            // Where nobody waits any more the connection ends here.
            let _unwanted = sender.send(connect_to_one_in::<System>(&options, &addresses, at));
        });
        let connected = loop {
            let waiting = &mut receiver;
            match py.detach(move || waiting.recv_timeout(LOOK)) {
                Ok(connected) => break connected,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::internal("a thread has panicked").into());
                }
            }
        };
        let (at, subscriber) = connected.map_err(|failed| {
            let may_come = |error: &SubscribeError| {
                matches!(error, SubscribeError::Connection { .. } | SubscribeError::Decode { .. })
            };
            self.is_refused = !failed.iter().any(may_come);
            // Why one refuses says more than that another is away.
            let (away, refused): (Vec<_>, Vec<_>) = failed.into_iter().partition(may_come);
            let error = refused.into_iter().chain(away).next();
            error.map_or_else(|| Failure::usage("name an address"), Failure::from)
        })?;
        self.at = at;
        let batches = ReceivedBatches::new(&self.schemas, self.prices);
        self.connection = Some(Mutex::new((subscriber, batches)));
        Ok(())
    }

    /// Reads what is there; at most for [`LOOK`]. What came before a failure is handed out before it.
    fn read(&mut self) -> Result<Came, Failure> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        let Some(connection) = &mut self.connection else { return Ok(Came::End) };
        let (subscriber, batches) = connection.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut refused = None;
        // Of a rush a batch is made at a time, of light load each record at once.
        while self.ready.is_empty() {
            let record = match subscriber.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.is_ended = true;
                    break;
                }
                Err(error) if error.is_timeout() => break,
                Err(error) => {
                    self.failed = Some(error.into());
                    break;
                }
            };
            refused = refusal(&record);
            if refused.is_some() {
                break;
            }
            if let Some(error) = record.get::<ErrorMsg>() {
                let text = error.err().unwrap_or("an error that is not text").to_owned();
                match error.code() {
                    // It goes on.
                    Ok(ErrorCode::SymbolResolutionFailed | ErrorCode::SkippedRecordsAfterSlowReading) => {
                        self.said.push(text);
                    }
                    // The server ends the session.
                    _ => self.reason = Some(text),
                }
                continue;
            }
            match self.resume.take(&record) {
                Taken::Repeat => continue,
                Taken::New => {}
                Taken::AfterHole(hole) => self.said.push(hole.to_string()),
            }
            self.records += u64::from(is_market(&record));
            self.ready.extend(batches.put(record)?);
            if !subscriber.has_more() {
                break;
            }
        }
        let rest = batches.take()?;
        if let Some(text) = refused {
            self.is_refused = self.resume.refuse(&self.schemas, self.addresses.len(), self.when_refused);
            self.failed = Some(Failure::live(text));
        }
        self.ready.splice(0..0, rest);
        if !self.ready.is_empty() {
            return Ok(Came::Some);
        }
        match self.failed.take() {
            Some(failure) => Err(failure),
            None if self.is_ended => Ok(Came::End),
            None => Ok(Came::Nothing),
        }
    }

    /// The next batch; `None` when the server has ended the session, or nothing came for `seconds`.
    fn wait(&mut self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<(Schema, RecordBatch)>> {
        let began = Instant::now();
        loop {
            if let Some(batch) = self.ready.pop() {
                return Ok(Some(batch));
            }
            if self.is_ended && self.failed.is_none() {
                return Ok(None);
            }
            if self.connection.is_none() && self.failed.is_none() {
                self.connect(py)?;
            }
            let came = py.detach(|| self.read());
            for text in std::mem::take(&mut self.said) {
                py.import("tapeworks.errors")?.call_method1("say", (text,))?;
            }
            match came? {
                Came::Some => {}
                Came::Nothing => py.check_signals()?,
                Came::End => return Ok(None),
            }
            if self.ready.is_empty()
                && seconds.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds)
            {
                return Ok(None);
            }
        }
    }
}

impl Live {
    /// The next row of the current batch.
    fn row(&mut self) -> Option<Record> {
        let (batch, row, schema) = self.current.as_mut()?;
        if *row >= batch.num_rows() {
            return None;
        }
        *row += 1;
        Some(Record::of_row(Arc::clone(batch), *row - 1, schema.as_str()))
    }
}

#[pymethods]
impl Live {
    #[new]
    #[pyo3(signature = (
        addresses, schema, *, key, dataset="TAPEWORKS.DEMO", symbols=Vec::new(), start=None, snapshot=false, slow_reader=None, prices="float", when_refused="stop"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        addresses: Vec<String>,
        schema: Vec<String>,
        key: String,
        dataset: &str,
        symbols: Vec<String>,
        start: Option<u64>,
        snapshot: bool,
        slow_reader: Option<String>,
        prices: &str,
        when_refused: &str,
    ) -> PyResult<Self> {
        let when_refused = match when_refused {
            "stop" => WhenRefused::Stop,
            "continue" => WhenRefused::Continue,
            other => {
                return Err(
                    Failure::usage(format!("when_refused={other:?}: expected stop or continue")).into()
                );
            }
        };
        let schemas = schema.iter().map(|name| name.parse()).collect::<Result<Vec<Schema>, _>>();
        let schemas = schemas.map_err(Failure::from)?;
        if schemas.is_empty() {
            return Err(Failure::usage("name a schema").into());
        }
        for (at, schema) in schemas.iter().enumerate() {
            if let Some(other) = schemas.iter().take(at).find(|other| other.has_records_of(*schema)) {
                let text =
                    format!("records of {other} and {schema} look alike: subscribe to them one by one");
                return Err(Failure::usage(text).into());
            }
        }
        let addresses = addresses.iter().map(|address| {
            let found = address.to_socket_addrs().ok().and_then(|mut all| all.next());
            found.ok_or_else(|| {
                Failure::usage(format!("'{address}' is not an address with a port, such as 127.0.0.1:13000"))
            })
        });
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let address = *addresses.first().ok_or_else(|| Failure::usage("name an address"))?;
        let options = SubscriberOptions {
            address,
            key,
            dataset: dataset.to_owned(),
            schemas: schema,
            symbols,
            snapshot,
            start,
            slow_reader,
            ts_out: false,
            timeout: Some(LOOK),
            patience: PATIENCE,
        };
        let prices = self::prices(prices)?;
        let (connection, ready, current) = (None, Vec::new(), None);
        Ok(Self {
            options,
            addresses,
            at: 0,
            schemas,
            prices,
            connection,
            ready,
            current,
            records: 0,
            resume: Resume::new(snapshot),
            is_ended: false,
            is_refused: false,
            when_refused,
            failed: None,
            said: Vec::new(),
            reason: None,
        })
    }

    /// Records received.
    #[getter]
    fn records(&self) -> u64 {
        self.records
    }

    /// Whether the server has ended the session.
    #[getter]
    fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// What the server has said before it ended the session.
    #[getter]
    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Ends the connection.
    fn close(&mut self) {
        (self.connection, self.is_ended) = (None, true);
    }

    /// Whether every server has refused: to try again is no use.
    #[getter]
    fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Begins a session anew at the next read, at the next server, where the last one ended: with a replay from the receive time of the last record,
    /// without the records that have come already.
    fn resume(&mut self) {
        (self.connection, self.is_ended, self.failed, self.reason) = (None, false, None, None);
        if self.addresses.len() > 1 {
            self.at = (self.at + 1) % self.addresses.len();
            self.options.patience = TRY;
        }
        self.resume.prepare(&self.schemas, &mut self.options);
        self.resume.connected(self.options.snapshot);
    }

    /// The next record, if one is there without waiting.
    fn ready_record(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.row() {
                return Some(record);
            }
            let (schema, batch) = self.ready.pop()?;
            self.current = Some((Arc::new(batch), 0, schema));
        }
    }

    /// The name of the schema and the next batch of records; `None` when the server has ended the session, or when nothing came
    /// for so many seconds. A batch has what is there: one record at light load, thousands in a rush.
    #[pyo3(signature = (seconds=None))]
    fn next_batch(
        &mut self,
        py: Python<'_>,
        seconds: Option<f64>,
    ) -> PyResult<Option<(&'static str, Batch)>> {
        Ok(self.wait(py, seconds)?.map(|(schema, batch)| (schema.as_str(), Batch(batch))))
    }

    /// The next record; `None` when the server has ended the session, or when nothing came for so many seconds.
    #[pyo3(signature = (seconds=None))]
    fn next_record(&mut self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Record>> {
        loop {
            if let Some(record) = self.ready_record() {
                return Ok(Some(record));
            }
            match self.wait(py, seconds)? {
                Some((schema, batch)) => self.current = Some((Arc::new(batch), 0, schema)),
                None => return Ok(None),
            }
        }
    }
}
