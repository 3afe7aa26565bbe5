//! A record: a row of a batch.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// A record of a schema, whose fields are attributes: names and order are those of the columns. Times are integers (ns since 1970
/// UTC), absent values `None`.
#[pyclass(frozen, module = "tapeworks")]
pub(crate) struct Record {
    pub(crate) batch: Arc<RecordBatch>,
    pub(crate) row: usize,
    pub(crate) schema: &'static str,
}

/// The digits behind the point of a decimal price.
const SCALE: u32 = 9;

/// A value of a column.
fn value<'py>(py: Python<'py>, column: &dyn Array, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    macro_rules! number {
        ($type:ty) => {
            Ok(column.as_primitive::<$type>().value(row).into_pyobject(py)?.into_any())
        };
    }
    match column.data_type() {
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Timestamp(..) => number!(TimestampNanosecondType),
        DataType::Decimal128(..) => {
            let units = column.as_primitive::<Decimal128Type>().value(row);
            let scale = 10i128.pow(SCALE);
            let sign = if units < 0 { "-" } else { "" };
            let (whole, rest) =
                (units.unsigned_abs() / scale.unsigned_abs(), units.unsigned_abs() % scale.unsigned_abs());
            py.import("decimal")?.getattr("Decimal")?.call1((format!("{sign}{whole}.{rest:09}"),))
        }
        DataType::Dictionary(..) => {
            let column = column.as_dictionary::<Int32Type>();
            let text = column.key(row).map(|key| column.values().as_string::<i32>().value(key));
            Ok(PyString::new(py, text.unwrap_or_default()).into_any())
        }
        other => Err(PyAttributeError::new_err(format!("no value of type {other}"))),
    }
}

#[pymethods]
impl Record {
    /// The name of the record's schema.
    #[getter]
    fn schema(&self) -> &'static str {
        self.schema
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.batch.column_by_name(name) {
            Some(column) => value(py, column, self.row),
            None => {
                Err(PyAttributeError::new_err(format!("a record of {} has no field {name}", self.schema)))
            }
        }
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.batch.column_by_name(name) {
            Some(column) => value(py, column, self.row),
            None => Err(PyKeyError::new_err(name.to_owned())),
        }
    }

    /// The names of the fields, in their order.
    fn keys(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// All fields.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (field, column) in self.batch.schema_ref().fields().iter().zip(self.batch.columns()) {
            fields.set_item(field.name(), value(py, column, self.row)?)?;
        }
        Ok(fields)
    }

    fn __dir__(&self) -> Vec<String> {
        let mut names = self.keys();
        names.extend(["schema", "keys", "as_dict"].map(str::to_owned));
        names
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!("<{}", self.schema);
        for (name, value) in self.as_dict(py)? {
            if !value.is_none() {
                text.push_str(&format!(" {}={}", name.str()?, value.repr()?));
            }
        }
        text.push('>');
        Ok(text)
    }
}
