//! Resources and resource templates, as listed.

use crate::json::RawJson;
use crate::model::{Annotations, Icon};

/// A resource, which is read by its URI.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
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
#[non_exhaustive]
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

impl Resource {
    /// A resource with this URI and name.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Resource {
        Resource { uri: uri.into(), name: name.into(), ..Resource::default() }
    }
}

setters! { impl Resource {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
    /// Sets the media type.
    fn with_mime(mime: impl Into<String>) = Some(mime.into());
    /// Sets the size in bytes.
    fn with_size(size: u64) = Some(size);
    /// Sets audience and priority.
    fn with_annotations(annotations: Annotations) = Some(annotations);
    /// Sets the icons.
    fn with_icons(icons: Vec<Icon>) = icons;
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

impl ResourceTemplate {
    /// A resource template with this URI template and name.
    pub fn new(uri_template: impl Into<String>, name: impl Into<String>) -> ResourceTemplate {
        ResourceTemplate {
            uri_template: uri_template.into(),
            name: name.into(),
            ..ResourceTemplate::default()
        }
    }
}

setters! { impl ResourceTemplate {
    /// Sets the display name.
    fn with_title(title: impl Into<String>) = Some(title.into());
    /// Sets the description.
    fn with_description(description: impl Into<String>) = Some(description.into());
    /// Sets the media type.
    fn with_mime(mime: impl Into<String>) = Some(mime.into());
    /// Sets audience and priority.
    fn with_annotations(annotations: Annotations) = Some(annotations);
    /// Sets the icons.
    fn with_icons(icons: Vec<Icon>) = icons;
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }
