//! Capture files and network headers, zero-copy.
