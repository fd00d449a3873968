//! Schemas and values: what is judged how, in which words, and whether others judge the same.

mod differential;
mod messages;
