//! Normalised market data in DBN, Parquet, CSV and JSON files.
