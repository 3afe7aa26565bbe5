//! Queues, waiting and memory for low-latency pipelines.
