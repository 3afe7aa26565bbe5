//! Puts the payload of TCP segments back in order.
