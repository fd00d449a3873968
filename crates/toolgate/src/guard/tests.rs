//! The whole room: what is asked for, in which order, and what is said.
