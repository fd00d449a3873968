//! A parameter of an operation, and how its value is serialized.

use serde_json::Value;

use crate::source::http::{Serialization, Style};
use crate::source::openapi::document::OpenApiVersion;

/// A parameter, and the file it is described in.
pub(super) struct Parameter<'a> {
    pub(super) file_index: usize,
    pub(super) name: &'a str,
    pub(super) location: &'a str,
    pub(super) value: &'a Value,
}

impl<'a> Parameter<'a> {
    /// The media type object of a parameter with `content`.
    pub(super) fn content(&self) -> Option<&'a Value> {
        self.value.get("content")?.as_object()?.values().next()
    }

    pub(super) fn serialization(&self, version: OpenApiVersion) -> Serialization {
        let text = |name: &str| self.value.get(name).and_then(Value::as_str);
        let default = match self.location {
            "path" | "header" => Serialization::SIMPLE,
            _ => Serialization::FORM,
        };
        if version == OpenApiVersion::V2 {
            return match (text("collectionFormat"), self.location) {
                (Some("multi"), _) => Serialization::FORM,
                (Some("ssv"), "query" | "formData") => {
                    Serialization { style: Style::SpaceDelimited, explode: false }
                }
                (Some("pipes"), "query" | "formData") => {
                    Serialization { style: Style::PipeDelimited, explode: false }
                }
                (_, "query" | "formData") => Serialization { style: Style::Form, explode: false },
                _ => default,
            };
        }
        if self.value.get("schema").is_none() && self.content().is_some() {
            return Serialization { style: Style::Json, explode: false };
        }
        let style = text("style").map_or(default.style, |style| parse_style(style, default.style));
        let is_exploded = matches!(style, Style::Form | Style::DeepObject);
        let explode = self.value.get("explode").and_then(Value::as_bool).unwrap_or(is_exploded);
        Serialization { style, explode }
    }
}

pub(super) fn parse_style(text: &str, default: Style) -> Style {
    match text {
        "form" => Style::Form,
        "spaceDelimited" => Style::SpaceDelimited,
        "pipeDelimited" => Style::PipeDelimited,
        "deepObject" => Style::DeepObject,
        "simple" => Style::Simple,
        "label" => Style::Label,
        "matrix" => Style::Matrix,
        _ => default,
    }
}
