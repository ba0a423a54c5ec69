//! Bounded reading and writing of little-endian fields.
