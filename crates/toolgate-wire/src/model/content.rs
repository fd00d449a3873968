//! Content blocks of tool results, prompts and sampling, and contents of resources.

use bytes::Bytes;

use crate::json::RawJson;

/// The sender of a message, or the audience of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Role {
    User,
    Assistant,
    /// A system message in a prompt. No protocol version has this role: it is sent as a user message with the assistant as
    /// its audience. Some dialects send it as it is.
    System,
}

/// A content block.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Content {
    /// The type and data of the block.
    pub kind: ContentKind,
    /// Audience and priority.
    pub annotations: Option<Annotations>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// The type and data of a content block.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentKind {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// The image data, not base64-encoded.
        data: Bytes,
        /// The media type, for example `image/png`.
        mime: String,
    },
    /// Audio.
    Audio {
        /// The audio data, not base64-encoded.
        data: Bytes,
        /// The media type, for example `audio/wav`.
        mime: String,
    },
    /// A link to a resource that the client may read.
    Link(Box<crate::model::Resource>),
    /// An embedded resource.
    Embedded(ResourceContents),
}

impl Content {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Content {
        ContentKind::Text(text.into()).into()
    }

    /// Creates an image block.
    pub fn image(data: impl Into<Bytes>, mime: impl Into<String>) -> Content {
        ContentKind::Image { data: data.into(), mime: mime.into() }.into()
    }

    /// Creates an audio block.
    pub fn audio(data: impl Into<Bytes>, mime: impl Into<String>) -> Content {
        ContentKind::Audio { data: data.into(), mime: mime.into() }.into()
    }

    /// Creates a link to a resource that the client may read.
    #[must_use]
    pub fn link(resource: crate::model::Resource) -> Content {
        ContentKind::Link(Box::new(resource)).into()
    }

    /// Creates an embedded resource.
    #[must_use]
    pub fn embedded(contents: ResourceContents) -> Content {
        ContentKind::Embedded(contents).into()
    }

    /// Returns the text of a text block.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            ContentKind::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<ContentKind> for Content {
    fn from(kind: ContentKind) -> Content {
        Content { kind, annotations: None, meta: None }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::text(text)
    }
}

/// Audience and priority of content or of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Annotations {
    /// The intended audience; empty if unspecified.
    pub audience: Vec<Role>,
    /// The priority, from 0 (optional) to 1 (required).
    pub priority: Option<f64>,
    /// The time of the last change, in ISO 8601.
    pub last_modified: Option<String>,
}

/// The contents of a resource.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResourceContents {
    /// The URI of the resource. One read may return the contents of several resources.
    pub uri: String,
    /// The media type, for example `text/plain`.
    pub mime: Option<String>,
    /// The data.
    pub body: ResourceBody,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// The data of a resource.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// Binary data, not base64-encoded.
    Blob(Bytes),
}

impl ResourceContents {
    /// Creates text contents.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> ResourceContents {
        ResourceContents { uri: uri.into(), mime: None, body: ResourceBody::Text(text.into()), meta: None }
    }

    /// Creates binary contents.
    pub fn blob(uri: impl Into<String>, bytes: impl Into<Bytes>) -> ResourceContents {
        ResourceContents { uri: uri.into(), mime: None, body: ResourceBody::Blob(bytes.into()), meta: None }
    }

    /// Sets the media type.
    #[must_use]
    pub fn with_mime(mut self, mime: impl Into<String>) -> ResourceContents {
        self.mime = Some(mime.into());
        self
    }
}

/// An icon for display.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Icon {
    /// An `https:` or `data:` URI.
    pub src: String,
    /// The media type, for example `image/svg+xml`.
    pub mime: Option<String>,
    /// Sizes, for example `48x48` or `any`.
    pub sizes: Vec<String>,
    /// The theme: `light` or `dark`.
    pub theme: Option<String>,
}

setters! { impl Content {
    /// Sets audience and priority.
    fn with_annotations(annotations: Annotations) = Some(annotations);
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

setters! { impl Annotations {
    /// Sets for whom the content is.
    fn with_audience(audience: Vec<Role>) = audience;
    /// Sets the importance: 0.0 is optional, 1.0 is required.
    fn with_priority(priority: f64) = Some(priority);
    /// Sets the time of the last change, in RFC 3339.
    fn with_last_modified(last_modified: impl Into<String>) = Some(last_modified.into());
} }

setters! { impl ResourceContents {
    /// Sets `_meta`, a JSON object.
    fn with_meta(meta: impl Into<RawJson>) = Some(meta.into());
} }

impl Icon {
    /// An icon with this URL, which may be a `data:` URL.
    pub fn new(src: impl Into<String>) -> Icon {
        Icon { src: src.into(), ..Icon::default() }
    }
}

setters! { impl Icon {
    /// Sets the media type.
    fn with_mime(mime: impl Into<String>) = Some(mime.into());
    /// Sets the sizes, for example `48x48` or `any`.
    fn with_sizes(sizes: Vec<String>) = sizes;
    /// Sets the theme that the icon is made for: `light` or `dark`.
    fn with_theme(theme: impl Into<String>) = Some(theme.into());
} }
