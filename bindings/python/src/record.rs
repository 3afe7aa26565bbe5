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
use pyo3::types::{PyDict, PyString, PyTuple};
use tapeworks_store::Schema;

use crate::errors::Failure;

/// A record of a schema, whose fields are attributes: names and order are those of the columns. Times are integers (ns since 1970
/// UTC), absent values `None`.
///
/// Records are immutable values: they compare and hash by their schema and fields, and can be copied and pickled.
#[pyclass(frozen, module = "tapeworks")]
pub(crate) struct Record {
    fields: Fields,
    schema: &'static str,
}

enum Fields {
    /// A row of a batch that other records share.
    Row { batch: Arc<RecordBatch>, row: usize },
    /// The fields of a record that was pickled.
    Values { names: Vec<String>, values: Vec<Py<PyAny>> },
}

impl Record {
    pub(crate) const fn of_row(batch: Arc<RecordBatch>, row: usize, schema: &'static str) -> Self {
        Self { fields: Fields::Row { batch, row }, schema }
    }

    /// The value of a field, if the schema has it.
    fn field<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.fields {
            Fields::Row { batch, row } => {
                batch.column_by_name(name).map(|column| value(py, column, *row)).transpose()
            }
            Fields::Values { names, values } => {
                let known = names.iter().zip(values).find(|(known, _)| *known == name);
                Ok(known.map(|(_, value)| value.bind(py).clone()))
            }
        }
    }

    /// The values of all fields, in their order.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        match &self.fields {
            Fields::Row { batch, row } => {
                batch.columns().iter().map(|column| value(py, column, *row)).collect()
            }
            Fields::Values { values, .. } => Ok(values.iter().map(|value| value.bind(py).clone()).collect()),
        }
    }
}

/// A record of these fields, for `pickle`.
#[pyfunction]
pub(crate) fn record(schema: &str, names: Vec<String>, values: Vec<Py<PyAny>>) -> PyResult<Record> {
    let schema: Schema = schema.parse().map_err(Failure::from)?;
    if names.len() != values.len() {
        return Err(Failure::usage("a record has a value for each field").into());
    }
    Ok(Record { fields: Fields::Values { names, values }, schema: schema.as_str() })
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
        self.field(py, name)?.ok_or_else(|| {
            PyAttributeError::new_err(format!("a record of {} has no field {name}", self.schema))
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// The names of the fields, in their order.
    fn keys(&self) -> Vec<String> {
        match &self.fields {
            Fields::Row { batch, .. } => {
                batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
            }
            Fields::Values { names, .. } => names.clone(),
        }
    }

    /// All fields.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (name, value) in self.keys().iter().zip(self.values(py)?) {
            fields.set_item(name, value)?;
        }
        Ok(fields)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let other = other.get();
        if (self.schema, self.keys()) != (other.schema, other.keys()) {
            return Ok(false);
        }
        for (one, other) in self.values(py)?.iter().zip(other.values(py)?) {
            if !one.eq(other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        (self.schema, PyTuple::new(py, self.values(py)?)?).into_pyobject(py)?.hash()
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let restore = py.import("tapeworks._native")?.getattr("record")?;
        Ok((restore, (self.schema, self.keys(), self.values(py)?).into_pyobject(py)?))
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
