//! Content: what tools, prompts and resources show to a model or a person.

use bytes::Bytes;

use crate::json::RawJson;

/// Who speaks, or for whom something is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Role {
    User,
    Assistant,
    /// Who sets the scene, in prompts. No edition has such a role: it is told as the user's words, meant for the
    /// assistant. Only some dialects can say it.
    System,
}

/// One block of content.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// What it is.
    pub kind: ContentKind,
    /// For whom, and how important.
    pub annotations: Option<Annotations>,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// What a block of content is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentKind {
    /// Words.
    Text(String),
    /// A picture.
    Image {
        /// The bytes of the picture, not yet encoded.
        data: Bytes,
        /// For example `image/png`.
        mime: String,
    },
    /// A sound.
    Audio {
        /// The bytes of the sound, not yet encoded.
        data: Bytes,
        /// For example `audio/wav`.
        mime: String,
    },
    /// The name of a resource that the client may read.
    Link(Box<crate::model::Resource>),
    /// A resource itself.
    Embedded(ResourceContents),
}

impl Content {
    /// Words.
    pub fn text(text: impl Into<String>) -> Content {
        ContentKind::Text(text.into()).into()
    }

    /// A picture.
    pub fn image(data: impl Into<Bytes>, mime: impl Into<String>) -> Content {
        ContentKind::Image { data: data.into(), mime: mime.into() }.into()
    }

    /// A sound.
    pub fn audio(data: impl Into<Bytes>, mime: impl Into<String>) -> Content {
        ContentKind::Audio { data: data.into(), mime: mime.into() }.into()
    }

    /// The name of a resource that the client may read.
    #[must_use]
    pub fn link(resource: crate::model::Resource) -> Content {
        ContentKind::Link(Box::new(resource)).into()
    }

    /// A resource itself.
    #[must_use]
    pub fn embedded(contents: ResourceContents) -> Content {
        ContentKind::Embedded(contents).into()
    }

    /// The words, if it is words.
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

/// For whom a thing is meant, and how important it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    /// Empty: not said.
    pub audience: Vec<Role>,
    /// From 0 (optional) to 1 (required).
    pub priority: Option<f64>,
    /// When it last changed, ISO 8601.
    pub last_modified: Option<String>,
}

/// What reading a resource gives.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceContents {
    /// Which resource this is; a read may give several.
    pub uri: String,
    /// For example `text/plain`.
    pub mime: Option<String>,
    /// The content itself.
    pub body: ResourceBody,
    /// `_meta`, a JSON object.
    pub meta: Option<RawJson>,
}

/// The body of a resource.
#[derive(Clone, Debug, PartialEq)]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// Bytes, not yet encoded.
    Blob(Bytes),
}

impl ResourceContents {
    /// A text.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> ResourceContents {
        ResourceContents { uri: uri.into(), mime: None, body: ResourceBody::Text(text.into()), meta: None }
    }

    /// Bytes.
    pub fn blob(uri: impl Into<String>, bytes: impl Into<Bytes>) -> ResourceContents {
        ResourceContents { uri: uri.into(), mime: None, body: ResourceBody::Blob(bytes.into()), meta: None }
    }

    /// The same contents with a media type.
    #[must_use]
    pub fn with_mime(mut self, mime: impl Into<String>) -> ResourceContents {
        self.mime = Some(mime.into());
        self
    }
}

/// A picture that stands for a thing in a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Icon {
    /// An `https:` or `data:` URI.
    pub src: String,
    /// For example `image/svg+xml`.
    pub mime: Option<String>,
    /// For example `48x48`, or `any`.
    pub sizes: Vec<String>,
    /// `light` or `dark`.
    pub theme: Option<String>,
}
