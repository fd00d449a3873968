//! Reads and writes content blocks and resource contents.
//!
//! A block that a version cannot represent is written as text, so that no content is lost:
//! `[audio: audio/wav, 1024 bytes]`.

use std::borrow::Cow;

use super::base64::Base64;
use super::fields::Field;
use super::object::{ObjectOrAbsent, ObjectWriter, UnescapedStr, WriteJson};
use crate::ProtocolError;
use crate::ProtocolVersion::{self, V2025_03_26, V2025_06_18};
use crate::model::{Annotations, Content, ContentKind, Icon, Resource, ResourceBody, ResourceContents, Role};

impl WriteJson for Content {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Content { kind, annotations, meta } = self;
        if let ContentKind::Link(link) = kind
            && version >= V2025_06_18
        {
            return write_link(out, version, link, self);
        }
        let object = ObjectWriter::open(out, version);
        let object = match kind {
            ContentKind::Text(text) => object.field("type", &UnescapedStr("text")).field("text", text),
            ContentKind::Image { data, mime } => add_blob_fields(object, "image", data, mime),
            ContentKind::Audio { data, mime } if version >= V2025_03_26 => {
                add_blob_fields(object, "audio", data, mime)
            }
            ContentKind::Embedded(contents) => object.field("type", "resource").field("resource", contents),
            ContentKind::Audio { .. } | ContentKind::Link(_) => {
                object.field("type", &UnescapedStr("text")).field("text", &*to_plain_text(self))
            }
        };
        object
            .optional("annotations", annotations)
            .since(V2025_06_18, "_meta", &ObjectOrAbsent(meta.as_ref()))
            .close();
    }
}

fn add_blob_fields<'o>(object: ObjectWriter<'o>, kind: &str, data: &[u8], mime: &str) -> ObjectWriter<'o> {
    object.field("type", kind).field("data", &Base64(data)).field("mimeType", mime)
}

/// Writes a link. It has one field for annotations and `_meta`: those of the block take precedence over those of the
/// resource.
fn write_link(out: &mut Vec<u8>, version: ProtocolVersion, link: &Resource, block: &Content) {
    let annotations = block.annotations.as_ref().or(link.annotations.as_ref());
    let meta = block.meta.as_ref().or(link.meta.as_ref());
    let object = ObjectWriter::open(out, version).field("type", "resource_link");
    add_resource_fields(object, link)
        .optional("annotations", &annotations)
        .optional("_meta", &ObjectOrAbsent(meta))
        .close();
}

/// Adds the fields that a resource and a link to it have in common.
pub(super) fn add_resource_fields<'o>(object: ObjectWriter<'o>, resource: &Resource) -> ObjectWriter<'o> {
    // The caller writes the last two.
    let Resource { uri, name, title, description, mime, size, icons, annotations: _, meta: _ } = resource;
    object
        .field("uri", uri)
        .field("name", name)
        .since(V2025_06_18, "title", title)
        .optional("description", description)
        .optional("mimeType", mime)
        .optional("size", size)
        .since(ProtocolVersion::V2025_11_25, "icons", icons)
}

/// Converts a block to plain text, for peers that cannot represent it.
pub(super) fn to_plain_text(content: &Content) -> Cow<'_, str> {
    match &content.kind {
        ContentKind::Text(text) => text.into(),
        ContentKind::Image { data, mime } => format!("[image: {mime}, {} bytes]", data.len()).into(),
        ContentKind::Audio { data, mime } => format!("[audio: {mime}, {} bytes]", data.len()).into(),
        ContentKind::Link(link) => link_to_plain_text(link).into(),
        ContentKind::Embedded(ResourceContents { body: ResourceBody::Text(text), .. }) => text.into(),
        ContentKind::Embedded(ResourceContents { uri, body: ResourceBody::Blob(data), .. }) => {
            format!("[resource: {uri}, {} bytes]", data.len()).into()
        }
    }
}

fn link_to_plain_text(link: &Resource) -> String {
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

impl WriteJson for ResourceContents {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ResourceContents { uri, mime, body, meta } = self;
        let object = ObjectWriter::open(out, version).field("uri", uri).optional("mimeType", mime);
        let object = match body {
            ResourceBody::Text(text) => object.field("text", text),
            ResourceBody::Blob(bytes) => object.field("blob", &Base64(bytes)),
        };
        object.since(V2025_06_18, "_meta", &ObjectOrAbsent(meta.as_ref())).close();
    }
}

impl WriteJson for Annotations {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Annotations { audience, priority, last_modified } = self;
        ObjectWriter::open(out, version)
            .optional("audience", audience)
            .optional("priority", &clamp_priority(*priority))
            .since(V2025_06_18, "lastModified", last_modified)
            .close();
    }
}

/// Clamps a number that the protocol limits to 0..=1. A strict peer would reject a whole list because of one number out
/// of range.
pub(super) fn clamp_priority(number: Option<f64>) -> Option<f64> {
    number.map(|number| number.clamp(0.0, 1.0))
}

impl WriteJson for Icon {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Icon { src, mime, sizes, theme } = self;
        let theme = theme.as_ref().filter(|theme| matches!(theme.as_str(), "light" | "dark"));
        ObjectWriter::open(out, version)
            .field("src", src)
            .optional("mimeType", mime)
            .optional("sizes", sizes)
            .optional("theme", &theme)
            .close();
    }
}

impl WriteJson for Role {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        out.extend_from_slice(match self {
            Role::User | Role::System => b"\"user\"",
            Role::Assistant => b"\"assistant\"",
        });
    }
}

pub(super) fn read_role(field: &Field<'_>) -> Result<Role, ProtocolError> {
    field.keyword("\"user\" or \"assistant\"", |name| match name {
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        _ => None,
    })
}

pub(super) fn read_content(field: &Field<'_>) -> Result<Content, ProtocolError> {
    let reader = field.reader("content")?;
    let [kind, text, data, mime, resource, annotations, meta] =
        &reader.pick(["type", "text", "data", "mimeType", "resource", "annotations", "_meta"]);
    let name = kind.string()?;
    let kind = match name.as_str() {
        "text" => ContentKind::Text(text.string()?),
        "image" => ContentKind::Image { data: data.bytes()?, mime: mime.string()? },
        "audio" => ContentKind::Audio { data: data.bytes()?, mime: mime.string()? },
        "resource" => ContentKind::Embedded(read_contents(resource)?),
        // The block itself has these members, like every block.
        "resource_link" => {
            ContentKind::Link(Box::new(Resource { annotations: None, meta: None, ..read_resource(field)? }))
        }
        _ => return Err(kind.type_error("a known content type")),
    };
    Ok(Content { kind, annotations: read_annotations(annotations)?, meta: meta.maybe_object()? })
}

pub(super) fn read_contents(field: &Field<'_>) -> Result<ResourceContents, ProtocolError> {
    let reader = field.reader("resource")?;
    let [uri, mime, text, blob, meta] = &reader.pick(["uri", "mimeType", "text", "blob", "_meta"]);
    let body = match (text.value(), blob.value()) {
        (Some(_), _) => ResourceBody::Text(text.string()?),
        (None, Some(_)) => ResourceBody::Blob(blob.bytes()?),
        (None, None) => return Err(text.type_error("present if resource.blob is not")),
    };
    Ok(ResourceContents { uri: uri.string()?, mime: mime.maybe_string()?, body, meta: meta.maybe_object()? })
}

pub(super) fn read_resource(field: &Field<'_>) -> Result<Resource, ProtocolError> {
    let reader = field.reader("resource")?;
    let [uri, name, title, description, mime, size, annotations, icons, meta] = &reader.pick([
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
        uri: uri.string()?,
        name: name.string()?,
        title: title.maybe_string()?,
        description: description.maybe_string()?,
        mime: mime.maybe_string()?,
        size: size.maybe_count()?,
        annotations: read_annotations(annotations)?,
        icons: icons.maybe_list(read_icon)?,
        meta: meta.maybe_object()?,
    })
}

pub(super) fn read_annotations(field: &Field<'_>) -> Result<Option<Annotations>, ProtocolError> {
    let Some(reader) = field.maybe_reader("annotations")? else {
        return Ok(None);
    };
    let [audience, priority, last_modified] = &reader.pick(["audience", "priority", "lastModified"]);
    Ok(Some(Annotations {
        audience: audience.maybe_list(read_role)?,
        priority: priority.maybe_number()?,
        last_modified: last_modified.maybe_string()?,
    }))
}

pub(super) fn read_icon(field: &Field<'_>) -> Result<Icon, ProtocolError> {
    let [src, mime, sizes, theme] = &field.reader("icon")?.pick(["src", "mimeType", "sizes", "theme"]);
    Ok(Icon {
        src: src.string()?,
        mime: mime.maybe_string()?,
        sizes: sizes.maybe_list(Field::string)?,
        theme: theme.maybe_string()?,
    })
}
