//! The protocol! macro of tapeworks-wire.
