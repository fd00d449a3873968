//! Resources and templates as a client sees them in a list.

use crate::json::RawJson;
use crate::model::{Annotations, Icon};

/// Something that can be read by its URI.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// Where it is.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is, for a model.
    pub description: Option<String>,
    /// For example `text/plain`.
    pub mime: Option<String>,
    /// Bytes, before any encoding.
    pub size: Option<u64>,
    /// For whom, and how important.
    pub annotations: Option<Annotations>,
    /// Pictures for lists.
    pub icons: Vec<Icon>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// A family of resources, by an RFC 6570 template of their URIs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceTemplate {
    /// For example `notes://{id}`.
    pub uri_template: String,
    /// Its name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What these are, for a model.
    pub description: Option<String>,
    /// The media type of all of them, if they share one.
    pub mime: Option<String>,
    /// For whom, and how important.
    pub annotations: Option<Annotations>,
    /// Pictures for lists.
    pub icons: Vec<Icon>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}
