//! The `machine!` macro.
