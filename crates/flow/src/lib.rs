//! Stages and the edges that join them.
