//! Reads and writes implementations and capabilities.
//!
//! Capabilities are open sets: unknown ones are ignored. Extensions are read in every version, since hosts of older versions
//! declare them too.

use std::collections::BTreeMap;

use super::content::read_icon;
use super::fields::{Field, ObjectReader};
use super::object::{EmptyObjectOrAbsent, ObjectWriter, TrueOrAbsent, WriteJson, nest};
use crate::ProtocolError;
use crate::ProtocolVersion::{self, V2025_03_26, V2025_06_18, V2025_11_25};
use crate::json::RawJson;
use crate::model::{
    ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability, ServerCapabilities,
    TaskCapability,
};
use crate::protocol_version::ElicitationSupport;

/// Appends the capabilities of a client, as `version` encodes them.
pub fn write_client_capabilities(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    capabilities: &ClientCapabilities,
) {
    capabilities.write_json(out, version);
}

impl WriteJson for Implementation {
    fn write_json(&self, out: &mut Vec<u8>, protocol_version: ProtocolVersion) {
        let Implementation { name, version, title, description, website, icons } = self;
        ObjectWriter::open(out, protocol_version)
            .field("name", name)
            .since(V2025_06_18, "title", title)
            .field("version", version)
            .since(V2025_11_25, "description", description)
            .since(V2025_11_25, "websiteUrl", website)
            .since(V2025_11_25, "icons", icons)
            .close();
    }
}

impl WriteJson for ClientCapabilities {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ClientCapabilities { roots, sampling, elicitation, tasks, extensions, experimental } = self;
        let roots = roots.map(|list_changed| {
            nest(move |object| object.until(V2025_11_25, "listChanged", &TrueOrAbsent(list_changed)))
        });
        let elicitation = elicitation.filter(|elicitation| has_elicitation(version, *elicitation));
        let tasks = tasks.map(|TaskCapability { list, cancel, tools: _, sampling, elicitation }| {
            let sampling =
                sampling.then(|| nest(|object| object.field("createMessage", &EmptyObjectOrAbsent(true))));
            let elicitation =
                elicitation.then(|| nest(|object| object.field("create", &EmptyObjectOrAbsent(true))));
            nest(move |object| {
                let requests = (sampling.is_some() || elicitation.is_some()).then(|| {
                    nest(|object| {
                        object.optional("sampling", &sampling).optional("elicitation", &elicitation)
                    })
                });
                object
                    .optional("list", &EmptyObjectOrAbsent(list))
                    .optional("cancel", &EmptyObjectOrAbsent(cancel))
                    .optional("requests", &requests)
            })
        });
        ObjectWriter::open(out, version)
            .optional("experimental", &Settings(experimental))
            .optional("roots", &roots)
            .optional("sampling", sampling)
            .since(V2025_06_18, "elicitation", &elicitation)
            .only(V2025_11_25, "tasks", &tasks)
            .since(V2025_11_25, "extensions", &Settings(extensions))
            .close();
    }
}

impl WriteJson for SamplingCapability {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let SamplingCapability { context, tools } = self;
        ObjectWriter::open(out, version)
            .since(V2025_11_25, "context", &EmptyObjectOrAbsent(*context))
            .since(V2025_11_25, "tools", &EmptyObjectOrAbsent(*tools))
            .close();
    }
}

/// Whether any part of the capability exists in a version.
fn has_elicitation(version: ProtocolVersion, elicitation: ElicitationCapability) -> bool {
    match version.behavior().elicitation {
        ElicitationSupport::Never => false,
        ElicitationSupport::Form => elicitation.form,
        ElicitationSupport::FormAndUrl => elicitation.form || elicitation.url,
    }
}

/// Writes `form` explicitly. `{}` also means forms, but some servers look for the key.
impl WriteJson for ElicitationCapability {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ElicitationCapability { form, url } = self;
        ObjectWriter::open(out, version)
            .since(V2025_11_25, "form", &EmptyObjectOrAbsent(*form))
            .since(V2025_11_25, "url", &EmptyObjectOrAbsent(*url))
            .close();
    }
}

impl WriteJson for ServerCapabilities {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ServerCapabilities {
            tools,
            prompts,
            resources,
            resource_updates,
            completions,
            logging,
            tasks,
            extensions,
            experimental,
        } = self;
        let list = |list_changed: bool| {
            nest(move |object| object.optional("listChanged", &TrueOrAbsent(list_changed)))
        };
        let resources = resources.map(|list_changed| {
            nest(move |object| {
                object
                    .optional("subscribe", &TrueOrAbsent(*resource_updates))
                    .optional("listChanged", &TrueOrAbsent(list_changed))
            })
        });
        let tasks = tasks.map(|TaskCapability { list, cancel, tools, sampling: _, elicitation: _ }| {
            let call = || nest(|object| object.field("call", &EmptyObjectOrAbsent(true)));
            let requests = tools.then(|| nest(move |object| object.field("tools", &call())));
            nest(move |object| {
                object
                    .optional("list", &EmptyObjectOrAbsent(list))
                    .optional("cancel", &EmptyObjectOrAbsent(cancel))
                    .optional("requests", &requests)
            })
        });
        ObjectWriter::open(out, version)
            .optional("experimental", &Settings(experimental))
            .optional("logging", &EmptyObjectOrAbsent(*logging))
            .since(V2025_03_26, "completions", &EmptyObjectOrAbsent(*completions))
            .optional("prompts", &prompts.map(list))
            .optional("resources", &resources)
            .optional("tools", &tools.map(list))
            .only(V2025_11_25, "tasks", &tasks)
            .since(V2025_11_25, "extensions", &Settings(extensions))
            .close();
    }
}

/// Settings by name. Each must be an object; others are omitted.
struct Settings<'a>(&'a BTreeMap<String, RawJson>);

impl WriteJson for Settings<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let objects = self.0.iter().filter(|(_, settings)| settings.view().is_object());
        objects
            .fold(ObjectWriter::open(out, version), |object, (name, settings)| object.entry(name, settings))
            .close();
    }

    fn is_absent(&self) -> bool {
        self.0.is_empty()
    }
}

pub(super) fn read_implementation(field: &Field<'_>) -> Result<Implementation, ProtocolError> {
    let reader = field.reader("implementation")?;
    let [name, version, title, description, website, icons] =
        &reader.pick(["name", "version", "title", "description", "websiteUrl", "icons"]);
    Ok(Implementation {
        name: name.string()?,
        version: version.string()?,
        title: title.maybe_string()?,
        description: description.maybe_string()?,
        website: website.maybe_string()?,
        icons: icons.maybe_list(read_icon)?,
    })
}

pub(super) fn read_client_capabilities(
    reader: &ObjectReader<'_>,
) -> Result<ClientCapabilities, ProtocolError> {
    let [roots, sampling, elicitation, tasks, extensions, experimental] =
        &reader.pick(["roots", "sampling", "elicitation", "tasks", "extensions", "experimental"]);
    Ok(ClientCapabilities {
        roots: read_list_changed(roots)?,
        sampling: sampling.maybe_reader("sampling")?.map(|reader| {
            let [context, tools] = &reader.pick(["context", "tools"]);
            SamplingCapability { context: is_declared(context), tools: is_declared(tools) }
        }),
        elicitation: elicitation.maybe_reader("elicitation")?.map(|reader| {
            let [form, url] = &reader.pick(["form", "url"]);
            // Spec, elicitation: an empty object is a client that supports forms.
            ElicitationCapability { form: is_declared(form) || !is_declared(url), url: is_declared(url) }
        }),
        tasks: read_tasks(tasks)?,
        extensions: read_settings(extensions)?,
        experimental: read_settings(experimental)?,
    })
}

pub(super) fn read_server_capabilities(
    reader: &ObjectReader<'_>,
) -> Result<ServerCapabilities, ProtocolError> {
    let [tools, prompts, resources, completions, logging, tasks, extensions, experimental] = &reader.pick([
        "tools",
        "prompts",
        "resources",
        "completions",
        "logging",
        "tasks",
        "extensions",
        "experimental",
    ]);
    let subscribe = resources.maybe_reader("resources")?.map(|reader| reader.field("subscribe").maybe_bool());
    Ok(ServerCapabilities {
        tools: read_list_changed(tools)?,
        prompts: read_list_changed(prompts)?,
        resources: read_list_changed(resources)?,
        resource_updates: subscribe.transpose()?.flatten().unwrap_or(false),
        completions: is_declared(completions),
        logging: is_declared(logging),
        tasks: read_tasks(tasks)?,
        extensions: read_settings(extensions)?,
        experimental: read_settings(experimental)?,
    })
}

fn read_list_changed(field: &Field<'_>) -> Result<Option<bool>, ProtocolError> {
    let Some(reader) = field.maybe_reader("capability")? else {
        return Ok(None);
    };
    Ok(Some(reader.field("listChanged").maybe_bool()?.unwrap_or(false)))
}

fn read_tasks(field: &Field<'_>) -> Result<Option<TaskCapability>, ProtocolError> {
    let Some(reader) = field.maybe_reader("tasks")? else {
        return Ok(None);
    };
    let [list, cancel, requests] = &reader.pick(["list", "cancel", "requests"]);
    let requests = |of: &str, request: &str| {
        let of = requests.value().and_then(|requests| requests.get(of));
        of.and_then(|of| of.get(request)).is_some_and(|mark| !mark.is_null())
    };
    Ok(Some(TaskCapability {
        list: is_declared(list),
        cancel: is_declared(cancel),
        tools: requests("tools", "call"),
        sampling: requests("sampling", "createMessage"),
        elicitation: requests("elicitation", "create"),
    }))
}

/// Whether a capability is declared, by an object with any content.
fn is_declared(field: &Field<'_>) -> bool {
    field.value().is_some_and(|value| value.is_object())
}

/// Reads settings by name; entries that are not objects are ignored.
fn read_settings(field: &Field<'_>) -> Result<BTreeMap<String, RawJson>, ProtocolError> {
    field.maybe_map(|entry| Ok(entry.object().ok()))
}
