//! What is not built.

include!(concat!(env!("OUT_DIR"), "/missing.rs"));
