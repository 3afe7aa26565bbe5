//! Errors as the exceptions of `tapeworks.errors`, with file, packet and offset.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tapeworks_analysis::input::InputError;
use tapeworks_analysis::replay::ReplayError;
use tapeworks_batch::BatchError;
use tapeworks_capture::CaptureError;
use tapeworks_outputs::subscriber::SubscribeError;
use tapeworks_store::StoreError;

/// An exception to come. It can be made without the interpreter's lock.
#[derive(Debug)]
pub(crate) struct Failure {
    class: &'static str,
    text: String,
    path: Option<String>,
    packet: Option<u64>,
    offset: Option<u64>,
}

impl Failure {
    fn new(class: &'static str, text: String, path: Option<String>) -> Self {
        Self { class, text, path, packet: None, offset: None }
    }

    /// What the caller gave is wrong.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new("UsageError", text.into(), None)
    }

    /// No file can be used.
    pub(crate) fn input(text: impl Into<String>) -> Self {
        Self::new("InputError", text.into(), None)
    }

    /// A fault of this package.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self::new("Error", text.into(), None)
    }

    /// A live server, or the way to it, failed.
    pub(crate) fn live(text: impl Into<String>) -> Self {
        Self::new("LiveError", text.into(), None)
    }

    /// A file cannot be written.
    pub(crate) fn output(text: impl Into<String>, path: &std::path::Path) -> Self {
        Self::new("OutputError", text.into(), Some(path.display().to_string()))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&CaptureError> for Failure {
    fn from(error: &CaptureError) -> Self {
        Self {
            class: "InputError",
            text: error.to_string(),
            path: Some(error.file().to_owned()),
            packet: error.number(),
            offset: error.offset(),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        match &error {
            InputError::Capture(error) => error.into(),
            InputError::NotRecognised { file, .. }
            | InputError::FixLog { file }
            | InputError::OtherProtocol { file, .. }
            | InputError::IsOutput { file }
            | InputError::NoDay { file, .. }
            | InputError::NoPackets { file }
            | InputError::OtherDay { file, .. }
            | InputError::Thread { file, .. } => {
                Self::new("InputError", error.to_string(), Some(file.clone()))
            }
            _ => Self::new("InputError", error.to_string(), None),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let path = match &error {
            StoreError::UnknownEnding { path, .. }
            | StoreError::NeedsSchema { path, .. }
            | StoreError::Write { path, .. }
            | StoreError::Encode { path, .. }
            | StoreError::Failed { path } => Some(path.display().to_string()),
            StoreError::UnknownSchema { .. } | StoreError::UnknownFormat { .. } => {
                return Self::usage(error.to_string());
            }
            _ => None,
        };
        Self::new("OutputError", error.to_string(), path)
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Input(error) => error.into(),
            ReplayError::Store(error) => error.into(),
            ReplayError::Venue(error) => Self::usage(error.to_string()),
            error => Self::new("Error", error.to_string(), None),
        }
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        let path = match &error {
            BatchError::Pattern { .. } | BatchError::NoCloud { .. } => return Self::usage(error.to_string()),
            BatchError::NoMatch { .. } | BatchError::NoTask { .. } => return Self::input(error.to_string()),
            BatchError::Executor { .. } => return Self::new("ExecutorError", error.to_string(), None),
            BatchError::Thread(_) | BatchError::Stopped => return Self::internal(error.to_string()),
            BatchError::OtherSettings { folder, .. }
            | BatchError::OtherFiles { folder, .. }
            | BatchError::OtherDate { folder, .. } => {
                let text =
                    format!("{error}; take another folder, or remove those results with overwrite=True");
                return Self::output(text, folder);
            }
            BatchError::Busy { folder } => Some(folder),
            BatchError::Io { path, .. } | BatchError::Damaged { path, .. } => Some(path),
            _ => None,
        };
        Self::new("OutputError", error.to_string(), path.map(|path| path.display().to_string()))
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Key(error) => Self::usage(error.to_string()),
            error => Self::live(error.to_string()),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let exception = || {
                let arguments = PyDict::new(py);
                arguments.set_item("path", failure.path)?;
                arguments.set_item("packet", failure.packet)?;
                arguments.set_item("offset", failure.offset)?;
                let class = py.import("tapeworks.errors")?.getattr(failure.class)?;
                class.call((failure.text,), Some(&arguments))
            };
            match exception() {
                Ok(exception) => PyErr::from_value(exception),
                Err(error) => error,
            }
        })
    }
}
