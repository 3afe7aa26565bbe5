//! Exchange protocols as declarations: zero-copy codecs and the schema each one carries.
