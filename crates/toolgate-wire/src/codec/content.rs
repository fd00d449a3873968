//! Content, both ways: what tools, prompts and resources show.
//!
//! A block that an edition has no shape for is shown as words, so that nobody
//! is left without an answer: `[audio: audio/wav, 1024 bytes]`.

use std::borrow::Cow;

use super::base64::Base64;
use super::fields::Field;
use super::object::{Object, Open, Put, Word};
use crate::Edition::{self, E2025_03_26, E2025_06_18};
use crate::Fault;
use crate::model::{Annotations, Content, ContentKind, Contents, ContentsBody, Icon, Resource, Role};

impl Put for Content {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Content { kind, annotations, meta } = self;
        if let ContentKind::Link(link) = kind
            && edition >= E2025_06_18
        {
            return put_link(out, edition, link, self);
        }
        let object = Object::open(out, edition);
        let object = match kind {
            ContentKind::Text(text) => object.field("type", &Word("text")).field("text", text),
            ContentKind::Image { data, mime } => put_blob(object, "image", data, mime),
            ContentKind::Audio { data, mime } if edition >= E2025_03_26 => {
                put_blob(object, "audio", data, mime)
            }
            ContentKind::Embedded(contents) => object.field("type", "resource").field("resource", contents),
            ContentKind::Audio { .. } | ContentKind::Link(_) => {
                object.field("type", &Word("text")).field("text", &*in_words(self))
            }
        };
        object.some("annotations", annotations).since(E2025_06_18, "_meta", &Open(meta.as_ref())).close();
    }
}

fn put_blob<'o>(object: Object<'o>, kind: &str, data: &[u8], mime: &str) -> Object<'o> {
    object.field("type", kind).field("data", &Base64(data)).field("mimeType", mime)
}

/// A link has one place for annotations and `_meta`: what the block says of
/// itself counts before what the resource says.
fn put_link(out: &mut Vec<u8>, edition: Edition, link: &Resource, block: &Content) {
    let annotations = block.annotations.as_ref().or(link.annotations.as_ref());
    let meta = block.meta.as_ref().or(link.meta.as_ref());
    let object = Object::open(out, edition).field("type", "resource_link");
    put_resource(object, link).some("annotations", &annotations).some("_meta", &Open(meta)).close();
}

/// What a resource and a link to it have in common.
pub(super) fn put_resource<'o>(object: Object<'o>, resource: &Resource) -> Object<'o> {
    // The last two are said by the caller.
    let Resource { uri, name, title, description, mime, size, icons, annotations: _, meta: _ } = resource;
    object
        .field("uri", uri)
        .field("name", name)
        .since(E2025_06_18, "title", title)
        .some("description", description)
        .some("mimeType", mime)
        .some("size", size)
        .since(Edition::E2025_11_25, "icons", icons)
}

/// A block as words, for those who can show nothing else.
pub(super) fn in_words(content: &Content) -> Cow<'_, str> {
    match &content.kind {
        ContentKind::Text(text) => text.into(),
        ContentKind::Image { data, mime } => format!("[image: {mime}, {} bytes]", data.len()).into(),
        ContentKind::Audio { data, mime } => format!("[audio: {mime}, {} bytes]", data.len()).into(),
        ContentKind::Link(link) => link_in_words(link).into(),
        ContentKind::Embedded(Contents { body: ContentsBody::Text(text), .. }) => text.into(),
        ContentKind::Embedded(Contents { uri, body: ContentsBody::Blob(data), .. }) => {
            format!("[resource: {uri}, {} bytes]", data.len()).into()
        }
    }
}

fn link_in_words(link: &Resource) -> String {
    let title = link.title.as_ref().unwrap_or(&link.name);
    let head = match title.is_empty() {
        true => format!("[resource: {}]", link.uri),
        false => format!("[resource: {}, {title}]", link.uri),
    };
    match &link.description {
        Some(description) => format!("{head}\n{description}"),
        None => head,
    }
}

impl Put for Contents {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Contents { uri, mime, body, meta } = self;
        let object = Object::open(out, edition).field("uri", uri).some("mimeType", mime);
        let object = match body {
            ContentsBody::Text(text) => object.field("text", text),
            ContentsBody::Blob(bytes) => object.field("blob", &Base64(bytes)),
        };
        object.since(E2025_06_18, "_meta", &Open(meta.as_ref())).close();
    }
}

impl Put for Annotations {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Annotations { audience, priority, last_modified } = self;
        Object::open(out, edition)
            .some("audience", audience)
            .some("priority", &share(*priority))
            .since(E2025_06_18, "lastModified", last_modified)
            .close();
    }
}

/// A number that the protocol has between 0 and 1. A strict peer would throw a
/// whole list away for one that is not.
pub(super) fn share(number: Option<f64>) -> Option<f64> {
    number.map(|number| number.clamp(0.0, 1.0))
}

impl Put for Icon {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Icon { src, mime, sizes, theme } = self;
        let theme = theme.as_ref().filter(|theme| matches!(theme.as_str(), "light" | "dark"));
        Object::open(out, edition)
            .field("src", src)
            .some("mimeType", mime)
            .some("sizes", sizes)
            .some("theme", &theme)
            .close();
    }
}

impl Put for Role {
    fn put(&self, out: &mut Vec<u8>, _: Edition) {
        out.extend_from_slice(match self {
            Role::User | Role::System => b"\"user\"",
            Role::Assistant => b"\"assistant\"",
        });
    }
}

pub(super) fn read_role(field: &Field<'_>) -> Result<Role, Fault> {
    field.word("\"user\" or \"assistant\"", |word| match word {
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        _ => None,
    })
}

pub(super) fn read_content(field: &Field<'_>) -> Result<Content, Fault> {
    let part = field.part("content")?;
    let [kind, text, data, mime, resource, annotations, meta] =
        &part.pick(["type", "text", "data", "mimeType", "resource", "annotations", "_meta"]);
    let name = kind.text()?;
    let kind = match name.as_str() {
        "text" => ContentKind::Text(text.text()?),
        "image" => ContentKind::Image { data: data.bytes()?, mime: mime.text()? },
        "audio" => ContentKind::Audio { data: data.bytes()?, mime: mime.text()? },
        "resource" => ContentKind::Embedded(read_contents(resource)?),
        // The block has them, as every block has.
        "resource_link" => {
            ContentKind::Link(Box::new(Resource { annotations: None, meta: None, ..read_resource(field)? }))
        }
        _ => return Err(kind.wrong("a known kind of content")),
    };
    Ok(Content { kind, annotations: read_annotations(annotations)?, meta: meta.maybe_object()? })
}

pub(super) fn read_contents(field: &Field<'_>) -> Result<Contents, Fault> {
    let part = field.part("resource")?;
    let [uri, mime, text, blob, meta] = &part.pick(["uri", "mimeType", "text", "blob", "_meta"]);
    let body = match (text.value(), blob.value()) {
        (Some(_), _) => ContentsBody::Text(text.text()?),
        (None, Some(_)) => ContentsBody::Blob(blob.bytes()?),
        (None, None) => return Err(text.wrong("there, or resource.blob")),
    };
    Ok(Contents { uri: uri.text()?, mime: mime.maybe_text()?, body, meta: meta.maybe_object()? })
}

pub(super) fn read_resource(field: &Field<'_>) -> Result<Resource, Fault> {
    let part = field.part("resource")?;
    let [uri, name, title, description, mime, size, annotations, icons, meta] = &part.pick([
        "uri",
        "name",
        "title",
        "description",
        "mimeType",
        "size",
        "annotations",
        "icons",
        "_meta",
    ]);
    Ok(Resource {
        uri: uri.text()?,
        name: name.text()?,
        title: title.maybe_text()?,
        description: description.maybe_text()?,
        mime: mime.maybe_text()?,
        size: size.maybe_count()?,
        annotations: read_annotations(annotations)?,
        icons: icons.maybe_list(read_icon)?,
        meta: meta.maybe_object()?,
    })
}

pub(super) fn read_annotations(field: &Field<'_>) -> Result<Option<Annotations>, Fault> {
    let Some(part) = field.maybe_part("annotations")? else {
        return Ok(None);
    };
    let [audience, priority, last_modified] = &part.pick(["audience", "priority", "lastModified"]);
    Ok(Some(Annotations {
        audience: audience.maybe_list(read_role)?,
        priority: priority.maybe_number()?,
        last_modified: last_modified.maybe_text()?,
    }))
}

pub(super) fn read_icon(field: &Field<'_>) -> Result<Icon, Fault> {
    let [src, mime, sizes, theme] = &field.part("icon")?.pick(["src", "mimeType", "sizes", "theme"]);
    Ok(Icon {
        src: src.text()?,
        mime: mime.maybe_text()?,
        sizes: sizes.maybe_list(Field::text)?,
        theme: theme.maybe_text()?,
    })
}
