//! Tasks of two processes on one store.
