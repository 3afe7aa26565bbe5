//! Exports traces to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! ```text
//! hot thread ─▶ samples ─▶ thread "otel": spans ─▶ POST /v1/traces ─▶ collector
//! ```
//!
//! [Samples](tapeworks_runtime::traces) wait in a bounded queue. The [exporter] converts them to [spans] and posts them with a blocking
//! client. An unreachable, slow or faulty collector delays only that thread; samples that then find the queue full are counted.
//!
//! Sources: *OpenTelemetry Protocol Specification* 1.9, OTLP/HTTP; the crate `opentelemetry-proto` for the messages.

mod client;
mod error;
pub mod exporter;
pub mod spans;
