//! Resources and resource templates, as listed.

use crate::json::RawJson;
use crate::model::{Annotations, Icon};

/// A resource, which is read by its URI.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// The URI.
    pub uri: String,
    /// The programmatic name.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// A description for the model.
    pub description: Option<String>,
    /// The media type, for example `text/plain`.
    pub mime: Option<String>,
    /// The size in bytes, before any encoding.
    pub size: Option<u64>,
    /// Audience and priority.
    pub annotations: Option<Annotations>,
    /// Icons for display.
    pub icons: Vec<Icon>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// A set of resources, described by an RFC 6570 URI template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceTemplate {
    /// The URI template, for example `notes://{id}`.
    pub uri_template: String,
    /// The programmatic name.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// A description for the model.
    pub description: Option<String>,
    /// The media type, if all resources of the template share one.
    pub mime: Option<String>,
    /// Audience and priority.
    pub annotations: Option<Annotations>,
    /// Icons for display.
    pub icons: Vec<Icon>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}
