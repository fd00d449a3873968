//! Reads and writes list items: tools, resources, templates and prompts.

use super::content::{add_resource_fields, read_annotations, read_content, read_icon, read_role};
use super::fields::Field;
use super::object::{ObjectOrAbsent, ObjectWriter, TrueOrAbsent, WriteJson, nest};
use crate::ProtocolError;
use crate::ProtocolVersion::{self, V2025_03_26, V2025_06_18, V2025_11_25};
use crate::json::RawJson;
use crate::model::{
    Annotations, Content, Prompt, PromptArgument, PromptMessage, Resource, ResourceTemplate, Role,
    TaskSupport, Tool, ToolHints,
};
use crate::protocol_version::StructuredContent;

impl WriteJson for Tool {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Tool { name, title, description, input_schema, output_schema, hints, icons, task_support, meta } =
            self;
        ObjectWriter::open(out, version)
            .field("name", name)
            .since(V2025_06_18, "title", title)
            .optional("description", description)
            .field("inputSchema", &InputSchema(input_schema))
            .since(V2025_06_18, "outputSchema", &output_schema_for(version, output_schema.as_ref()))
            .since(V2025_03_26, "annotations", hints)
            .since(V2025_11_25, "icons", icons)
            .only(V2025_11_25, "execution", &execution_field(*task_support))
            .since(V2025_06_18, "_meta", &ObjectOrAbsent(meta.as_ref()))
            .close();
    }
}

/// The schema of arguments. A value that is not an object is written as a schema that accepts everything, since a tool
/// without a schema would make the whole list invalid.
struct InputSchema<'a>(&'a RawJson);

impl WriteJson for InputSchema<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match ObjectOrAbsent(Some(self.0)).object() {
            Some(schema) => schema.write_json(out, version),
            None => out.extend_from_slice(b"{\"type\":\"object\"}"),
        }
    }
}

/// Returns the output schema if `version` allows it. A client of a version that only allows objects rejects the whole list
/// for any other schema.
fn output_schema_for(version: ProtocolVersion, schema: Option<&RawJson>) -> Option<&RawJson> {
    let schema = ObjectOrAbsent(schema).object()?;
    let allows_any = version.behavior().structured_content == StructuredContent::Any;
    let object = || schema.view().get("type").is_some_and(|kind| kind.eq_str("object"));
    (allows_any || object()).then_some(schema)
}

fn execution_field(support: TaskSupport) -> Option<impl WriteJson> {
    let name = match support {
        // The default, which is omitted.
        TaskSupport::Forbidden => return None,
        TaskSupport::Optional => "optional",
        TaskSupport::Required => "required",
    };
    Some(nest(move |object| object.field("taskSupport", name)))
}

impl WriteJson for ToolHints {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ToolHints { title, read_only, destructive, idempotent, open_world } = self;
        ObjectWriter::open(out, version)
            .optional("title", title)
            .optional("readOnlyHint", read_only)
            .optional("destructiveHint", destructive)
            .optional("idempotentHint", idempotent)
            .optional("openWorldHint", open_world)
            .close();
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl WriteJson for Resource {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        add_resource_fields(ObjectWriter::open(out, version), self)
            .optional("annotations", &self.annotations)
            .since(V2025_06_18, "_meta", &ObjectOrAbsent(self.meta.as_ref()))
            .close();
    }
}

impl WriteJson for ResourceTemplate {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ResourceTemplate { uri_template, name, title, description, mime, annotations, icons, meta } =
            self;
        ObjectWriter::open(out, version)
            .field("uriTemplate", uri_template)
            .field("name", name)
            .since(V2025_06_18, "title", title)
            .optional("description", description)
            .optional("mimeType", mime)
            .since(V2025_11_25, "icons", icons)
            .optional("annotations", annotations)
            .since(V2025_06_18, "_meta", &ObjectOrAbsent(meta.as_ref()))
            .close();
    }
}

impl WriteJson for Prompt {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Prompt { name, title, description, arguments, icons, meta } = self;
        ObjectWriter::open(out, version)
            .field("name", name)
            .since(V2025_06_18, "title", title)
            .optional("description", description)
            .optional("arguments", arguments)
            .since(V2025_11_25, "icons", icons)
            .since(V2025_06_18, "_meta", &ObjectOrAbsent(meta.as_ref()))
            .close();
    }
}

impl WriteJson for PromptArgument {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let PromptArgument { name, title, description, required } = self;
        ObjectWriter::open(out, version)
            .field("name", name)
            .since(V2025_06_18, "title", title)
            .optional("description", description)
            .optional("required", &TrueOrAbsent(*required))
            .close();
    }
}

impl WriteJson for PromptMessage {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let PromptMessage { role, content } = self;
        let object = ObjectWriter::open(out, version).field("role", role);
        if *role == Role::System && content.annotations.is_none() {
            let annotations = Annotations { audience: vec![Role::Assistant], ..Annotations::default() };
            let for_assistant = Content { annotations: Some(annotations), ..content.clone() };
            return object.field("content", &for_assistant).close();
        }
        object.field("content", content).close();
    }
}

/// The messages of a prompt, for a client that may support the role `system`.
pub(super) struct PromptMessages<'a> {
    pub(super) messages: &'a [PromptMessage],
    pub(super) has_system_role: bool,
}

impl WriteJson for PromptMessages<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        if !self.has_system_role {
            return self.messages.write_json(out, version);
        }
        out.push(b'[');
        for (index, PromptMessage { role, content }) in self.messages.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let object = ObjectWriter::open(out, version);
            let object = match role {
                Role::System => object.field("role", "system"),
                role => object.field("role", role),
            };
            object.field("content", content).close();
        }
        out.push(b']');
    }
}

pub(super) fn read_tool(field: &Field<'_>) -> Result<Tool, ProtocolError> {
    let reader = field.reader("tool")?;
    let [name, title, description, input, output, hints, icons, execution, meta] = &reader.pick([
        "name",
        "title",
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
        "icons",
        "execution",
        "_meta",
    ]);
    Ok(Tool {
        name: name.string()?,
        title: title.maybe_string()?,
        description: description.maybe_string()?,
        input_schema: input.object()?,
        output_schema: output.maybe_object()?,
        hints: read_hints(hints)?,
        icons: icons.maybe_list(read_icon)?,
        task_support: read_execution(execution)?,
        meta: meta.maybe_object()?,
    })
}

fn read_hints(field: &Field<'_>) -> Result<ToolHints, ProtocolError> {
    let Some(reader) = field.maybe_reader("annotations")? else {
        return Ok(ToolHints::default());
    };
    let [title, read_only, destructive, idempotent, open_world] =
        &reader.pick(["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]);
    Ok(ToolHints {
        title: title.maybe_string()?,
        read_only: read_only.maybe_bool()?,
        destructive: destructive.maybe_bool()?,
        idempotent: idempotent.maybe_bool()?,
        open_world: open_world.maybe_bool()?,
    })
}

fn read_execution(field: &Field<'_>) -> Result<TaskSupport, ProtocolError> {
    let Some(reader) = field.maybe_reader("execution")? else {
        return Ok(TaskSupport::Forbidden);
    };
    let support = reader.field("taskSupport");
    match support.value() {
        None => Ok(TaskSupport::Forbidden),
        Some(_) => support.keyword("\"forbidden\", \"optional\" or \"required\"", |name| match name {
            "forbidden" => Some(TaskSupport::Forbidden),
            "optional" => Some(TaskSupport::Optional),
            "required" => Some(TaskSupport::Required),
            _ => None,
        }),
    }
}

pub(super) fn read_template(field: &Field<'_>) -> Result<ResourceTemplate, ProtocolError> {
    let reader = field.reader("resourceTemplate")?;
    let [uri_template, name, title, description, mime, annotations, icons, meta] = &reader.pick([
        "uriTemplate",
        "name",
        "title",
        "description",
        "mimeType",
        "annotations",
        "icons",
        "_meta",
    ]);
    Ok(ResourceTemplate {
        uri_template: uri_template.string()?,
        name: name.string()?,
        title: title.maybe_string()?,
        description: description.maybe_string()?,
        mime: mime.maybe_string()?,
        annotations: read_annotations(annotations)?,
        icons: icons.maybe_list(read_icon)?,
        meta: meta.maybe_object()?,
    })
}

pub(super) fn read_prompt(field: &Field<'_>) -> Result<Prompt, ProtocolError> {
    let reader = field.reader("prompt")?;
    let [name, title, description, arguments, icons, meta] =
        &reader.pick(["name", "title", "description", "arguments", "icons", "_meta"]);
    Ok(Prompt {
        name: name.string()?,
        title: title.maybe_string()?,
        description: description.maybe_string()?,
        arguments: arguments.maybe_list(read_prompt_argument)?,
        icons: icons.maybe_list(read_icon)?,
        meta: meta.maybe_object()?,
    })
}

fn read_prompt_argument(field: &Field<'_>) -> Result<PromptArgument, ProtocolError> {
    let [name, title, description, required] =
        &field.reader("argument")?.pick(["name", "title", "description", "required"]);
    Ok(PromptArgument {
        name: name.string()?,
        title: title.maybe_string()?,
        description: description.maybe_string()?,
        required: required.maybe_bool()?.unwrap_or(false),
    })
}

pub(super) fn read_prompt_message(field: &Field<'_>) -> Result<PromptMessage, ProtocolError> {
    let [role, content] = &field.reader("message")?.pick(["role", "content"]);
    Ok(PromptMessage { role: read_role(role)?, content: read_content(content)? })
}
