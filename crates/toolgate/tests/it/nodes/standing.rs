//! Standing streams and change notices across nodes.
