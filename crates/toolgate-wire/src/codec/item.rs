//! What stands in lists, both ways: tools, resources, templates, prompts.

use super::content::{put_resource, read_annotations, read_content, read_icon, read_role};
use super::fields::Field;
use super::object::{Flag, Object, Open, Put, nest};
use crate::Edition::{self, E2025_03_26, E2025_06_18, E2025_11_25};
use crate::Fault;
use crate::edition::Structured;
use crate::json::Raw;
use crate::model::{
    Annotations, Content, Prompt, PromptArgument, PromptMessage, Resource, ResourceTemplate, Role,
    TaskSupport, Tool, ToolHints,
};

impl Put for Tool {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Tool { name, title, description, input_schema, output_schema, hints, icons, task_support, meta } =
            self;
        Object::open(out, edition)
            .field("name", name)
            .since(E2025_06_18, "title", title)
            .some("description", description)
            .field("inputSchema", &InputSchema(input_schema))
            .since(E2025_06_18, "outputSchema", &output_schema_for(edition, output_schema.as_ref()))
            .since(E2025_03_26, "annotations", hints)
            .since(E2025_11_25, "icons", icons)
            .only(E2025_11_25, "execution", &execution(*task_support))
            .since(E2025_06_18, "_meta", &Open(meta.as_ref()))
            .close();
    }
}

/// The schema of arguments. What is no schema is written as one that takes
/// everything, since without any the list would be no list.
struct InputSchema<'a>(&'a Raw);

impl Put for InputSchema<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        match Open(Some(self.0)).object() {
            Some(schema) => schema.put(out, edition),
            None => out.extend_from_slice(b"{\"type\":\"object\"}"),
        }
    }
}

/// A client of an edition that knows objects only throws the whole list away
/// for one other schema in it.
fn output_schema_for(edition: Edition, schema: Option<&Raw>) -> Option<&Raw> {
    let schema = Open(schema).object()?;
    let any = edition.facts().structured == Structured::Any;
    let object = || schema.view().get("type").is_some_and(|kind| kind.is_text("object"));
    (any || object()).then_some(schema)
}

fn execution(support: TaskSupport) -> Option<impl Put> {
    let word = match support {
        // The same as not said.
        TaskSupport::Forbidden => return None,
        TaskSupport::Optional => "optional",
        TaskSupport::Required => "required",
    };
    Some(nest(move |object| object.field("taskSupport", word)))
}

impl Put for ToolHints {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let ToolHints { title, read_only, destructive, idempotent, open_world } = self;
        Object::open(out, edition)
            .some("title", title)
            .some("readOnlyHint", read_only)
            .some("destructiveHint", destructive)
            .some("idempotentHint", idempotent)
            .some("openWorldHint", open_world)
            .close();
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Put for Resource {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        put_resource(Object::open(out, edition), self)
            .some("annotations", &self.annotations)
            .since(E2025_06_18, "_meta", &Open(self.meta.as_ref()))
            .close();
    }
}

impl Put for ResourceTemplate {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let ResourceTemplate { uri_template, name, title, description, mime, annotations, icons, meta } =
            self;
        Object::open(out, edition)
            .field("uriTemplate", uri_template)
            .field("name", name)
            .since(E2025_06_18, "title", title)
            .some("description", description)
            .some("mimeType", mime)
            .since(E2025_11_25, "icons", icons)
            .some("annotations", annotations)
            .since(E2025_06_18, "_meta", &Open(meta.as_ref()))
            .close();
    }
}

impl Put for Prompt {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Prompt { name, title, description, arguments, icons, meta } = self;
        Object::open(out, edition)
            .field("name", name)
            .since(E2025_06_18, "title", title)
            .some("description", description)
            .some("arguments", arguments)
            .since(E2025_11_25, "icons", icons)
            .since(E2025_06_18, "_meta", &Open(meta.as_ref()))
            .close();
    }
}

impl Put for PromptArgument {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let PromptArgument { name, title, description, required } = self;
        Object::open(out, edition)
            .field("name", name)
            .since(E2025_06_18, "title", title)
            .some("description", description)
            .some("required", &Flag(*required))
            .close();
    }
}

impl Put for PromptMessage {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let PromptMessage { role, content } = self;
        let object = Object::open(out, edition).field("role", role);
        if *role == Role::System && content.annotations.is_none() {
            let annotations = Annotations { audience: vec![Role::Assistant], ..Annotations::default() };
            let meant = Content { annotations: Some(annotations), ..content.clone() };
            return object.field("content", &meant).close();
        }
        object.field("content", content).close();
    }
}

/// The messages of a prompt, to somebody who may know the role `system`.
pub(super) struct Messages<'a> {
    pub(super) messages: &'a [PromptMessage],
    pub(super) system: bool,
}

impl Put for Messages<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        if !self.system {
            return self.messages.put(out, edition);
        }
        out.push(b'[');
        for (place, PromptMessage { role, content }) in self.messages.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            let object = Object::open(out, edition);
            let object = match role {
                Role::System => object.field("role", "system"),
                role => object.field("role", role),
            };
            object.field("content", content).close();
        }
        out.push(b']');
    }
}

pub(super) fn read_tool(field: &Field<'_>) -> Result<Tool, Fault> {
    let part = field.part("tool")?;
    let [name, title, description, input, output, hints, icons, execution, meta] = &part.pick([
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
        name: name.text()?,
        title: title.maybe_text()?,
        description: description.maybe_text()?,
        input_schema: input.object()?,
        output_schema: output.maybe_object()?,
        hints: read_hints(hints)?,
        icons: icons.maybe_list(read_icon)?,
        task_support: read_execution(execution)?,
        meta: meta.maybe_object()?,
    })
}

fn read_hints(field: &Field<'_>) -> Result<ToolHints, Fault> {
    let Some(part) = field.maybe_part("annotations")? else {
        return Ok(ToolHints::default());
    };
    let [title, read_only, destructive, idempotent, open_world] =
        &part.pick(["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]);
    Ok(ToolHints {
        title: title.maybe_text()?,
        read_only: read_only.maybe_bool()?,
        destructive: destructive.maybe_bool()?,
        idempotent: idempotent.maybe_bool()?,
        open_world: open_world.maybe_bool()?,
    })
}

fn read_execution(field: &Field<'_>) -> Result<TaskSupport, Fault> {
    let Some(part) = field.maybe_part("execution")? else {
        return Ok(TaskSupport::Forbidden);
    };
    let support = part.field("taskSupport");
    match support.value() {
        None => Ok(TaskSupport::Forbidden),
        Some(_) => support.word("\"forbidden\", \"optional\" or \"required\"", |word| match word {
            "forbidden" => Some(TaskSupport::Forbidden),
            "optional" => Some(TaskSupport::Optional),
            "required" => Some(TaskSupport::Required),
            _ => None,
        }),
    }
}

pub(super) fn read_template(field: &Field<'_>) -> Result<ResourceTemplate, Fault> {
    let part = field.part("resourceTemplate")?;
    let [uri_template, name, title, description, mime, annotations, icons, meta] = &part.pick([
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
        uri_template: uri_template.text()?,
        name: name.text()?,
        title: title.maybe_text()?,
        description: description.maybe_text()?,
        mime: mime.maybe_text()?,
        annotations: read_annotations(annotations)?,
        icons: icons.maybe_list(read_icon)?,
        meta: meta.maybe_object()?,
    })
}

pub(super) fn read_prompt(field: &Field<'_>) -> Result<Prompt, Fault> {
    let part = field.part("prompt")?;
    let [name, title, description, arguments, icons, meta] =
        &part.pick(["name", "title", "description", "arguments", "icons", "_meta"]);
    Ok(Prompt {
        name: name.text()?,
        title: title.maybe_text()?,
        description: description.maybe_text()?,
        arguments: arguments.maybe_list(read_prompt_argument)?,
        icons: icons.maybe_list(read_icon)?,
        meta: meta.maybe_object()?,
    })
}

fn read_prompt_argument(field: &Field<'_>) -> Result<PromptArgument, Fault> {
    let [name, title, description, required] =
        &field.part("argument")?.pick(["name", "title", "description", "required"]);
    Ok(PromptArgument {
        name: name.text()?,
        title: title.maybe_text()?,
        description: description.maybe_text()?,
        required: required.maybe_bool()?.unwrap_or(false),
    })
}

pub(super) fn read_prompt_message(field: &Field<'_>) -> Result<PromptMessage, Fault> {
    let [role, content] = &field.part("message")?.pick(["role", "content"]);
    Ok(PromptMessage { role: read_role(role)?, content: read_content(content)? })
}
