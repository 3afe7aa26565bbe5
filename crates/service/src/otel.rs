//! Traces to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! ```text
//! hot thread ─▶ samples ─▶ thread "otel": spans ─▶ POST /v1/traces ─▶ collector
//! ```
//!
//! [Samples](tapeworks_runtime::traces) wait in a bounded queue; the [exporter] makes [spans] of them and posts them with a client that blocks. A
//! collector that is away, slow or wrong delays that thread and nothing else: what then finds no room in the queue is counted.
//!
//! Sources: *OpenTelemetry Protocol Specification* 1.9, OTLP/HTTP; the crate `opentelemetry-proto` for the messages.

mod client;
mod error;
pub mod exporter;
pub mod spans;
