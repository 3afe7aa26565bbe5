//! Records of a running plant.

use std::collections::HashMap;
use std::net::ToSocketAddrs as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use dbn::{ErrorMsg, Record as _, SystemMsg};
use pyo3::prelude::*;
use tapeworks_outputs::subscriber::{Records as _, SubscribeError, Subscriber, SubscriberOptions};
use tapeworks_store::{Prices, ReceivedBatches, Schema, is_market, is_snapshot};

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
}

/// What a session that is begun anew has to leave out: what has come already.
#[derive(Default)]
struct Resume {
    /// The greatest receive time so far, in ns, and how many records of each type have it.
    last: Option<u64>,
    at_last: HashMap<u8, u64>,
    /// Where the session was begun anew, and how many records of each type with that receive time are to be left out.
    from: u64,
    left_out: HashMap<u8, u64>,
}

impl Resume {
    /// Takes note of a record. `false` when it has come already.
    fn takes(&mut self, rtype: u8, received: u64) -> bool {
        if received == u64::MAX {
            return true;
        }
        if received < self.from {
            return false;
        }
        if received == self.from
            && let Some(left) = self.left_out.get_mut(&rtype).filter(|left| **left > 0)
        {
            *left -= 1;
            return false;
        }
        match self.last {
            Some(last) if received < last => {}
            Some(last) if received == last => *self.at_last.entry(rtype).or_default() += 1,
            _ => {
                self.last = Some(received);
                self.at_last = HashMap::from([(rtype, 1)]);
            }
        }
        true
    }

    /// Where to begin anew; `None` when nothing has come.
    fn begin(&mut self) -> Option<u64> {
        self.from = self.last?;
        self.left_out = self.at_last.clone();
        self.last
    }
}

/// The lock only says that one thread at a time has it, which `&mut self` makes sure of.
type Connected = Mutex<(Subscriber, ReceivedBatches)>;

enum Came {
    Some,
    Nothing,
    End,
}

impl Live {
    /// Connects if it has not, and reads what is there; at most for [`LOOK`].
    fn read(&mut self) -> Result<Came, Failure> {
        if self.is_ended {
            return Ok(Came::End);
        }
        let connected = match &mut self.connection {
            Some(connected) => connected,
            none => {
                let subscriber = Subscriber::connect(&self.options).inspect_err(|error| {
                    self.is_refused |=
                        !matches!(error, SubscribeError::Connection { .. } | SubscribeError::Decode { .. });
                })?;
                let batches = ReceivedBatches::new(&self.schemas, self.prices);
                none.insert(Mutex::new((subscriber, batches)))
            }
        };
        let (subscriber, batches) = connected.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Of a rush a batch is made at a time, of light load each record at once.
        while self.ready.is_empty() {
            let record = match subscriber.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.is_ended = true;
                    break;
                }
                Err(error) if error.is_timeout() => break,
                Err(error) => return Err(error.into()),
            };
            if let Some(error) = record.get::<ErrorMsg>() {
                self.is_refused = true;
                return Err(Failure::live(error.err().unwrap_or("an error that is not text")));
            }
            if record.get::<SystemMsg>().is_none() && is_market(&record) {
                let is_kept =
                    is_snapshot(&record) || self.resume.takes(record.header().rtype, record.raw_index_ts());
                if !is_kept {
                    continue;
                }
                self.records += 1;
            }
            self.ready.extend(batches.put(record)?);
            if !subscriber.has_more() {
                break;
            }
        }
        let rest = batches.take()?;
        self.ready.splice(0..0, rest);
        if self.is_ended && self.ready.is_empty() {
            return Ok(Came::End);
        }
        Ok(if self.ready.is_empty() { Came::Nothing } else { Came::Some })
    }

    /// The next batch; `None` when the server has ended the session, or nothing came for `seconds`.
    fn wait(&mut self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<(Schema, RecordBatch)>> {
        let began = std::time::Instant::now();
        loop {
            if let Some(batch) = self.ready.pop() {
                return Ok(Some(batch));
            }
            match py.detach(|| self.read())? {
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
        Some(Record { batch: Arc::clone(batch), row: *row - 1, schema: schema.as_str() })
    }
}

#[pymethods]
impl Live {
    #[new]
    #[pyo3(signature = (
        address, schema, *, key, dataset="TAPEWORKS.DEMO", symbols=Vec::new(), start=None, snapshot=false, slow_reader=None, prices="float"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        address: &str,
        schema: Vec<String>,
        key: String,
        dataset: &str,
        symbols: Vec<String>,
        start: Option<u64>,
        snapshot: bool,
        slow_reader: Option<String>,
        prices: &str,
    ) -> PyResult<Self> {
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
        let found = address.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = found.ok_or_else(|| {
            Failure::usage(format!("'{address}' is not an address with a port, such as 127.0.0.1:13000"))
        })?;
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
        let (records, resume, is_ended, is_refused) = (0, Resume::default(), false, false);
        Ok(Self {
            options,
            schemas,
            prices,
            connection,
            ready,
            current,
            records,
            resume,
            is_ended,
            is_refused,
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

    /// Whether the server has refused: to try again is no use.
    #[getter]
    fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Begins a session anew at the next read, where the last one ended: with a replay from the receive time of the last record,
    /// without the records that have come already.
    fn resume(&mut self) {
        (self.connection, self.is_ended) = (None, false);
        if let Some(last) = self.resume.begin() {
            (self.options.start, self.options.snapshot) = (Some(last), false);
        }
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
