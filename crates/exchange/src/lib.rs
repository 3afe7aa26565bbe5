//! Simulated venues: a deterministic market in real protocol bytes.
