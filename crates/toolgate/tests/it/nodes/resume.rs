//! Streams that were cut, resumed on another node.
