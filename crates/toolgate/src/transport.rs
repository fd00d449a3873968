//! The porch: bytes in, bytes out.
//!
//! Transports know headers and sockets. They know no methods, no tools, no rights and no editions.

pub(crate) mod signal;
pub(crate) mod stdio;

#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod listen;
