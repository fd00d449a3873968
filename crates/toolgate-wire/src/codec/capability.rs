//! Who each side is and what it can do, both ways.
//!
//! Capabilities are open sets: what we do not know is ignored. Extensions are
//! read in every edition, because hosts of older ones declare them too.

use std::collections::BTreeMap;

use super::content::read_icon;
use super::fields::{Field, Part};
use super::object::{Flag, Mark, Object, Put, nest};
use crate::Edition::{self, E2025_03_26, E2025_06_18, E2025_11_25};
use crate::Fault;
use crate::edition::Elicitation;
use crate::json::Raw;
use crate::model::{
    ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability, ServerCapabilities,
    TaskCapability,
};

/// Appends what a client can do, as `edition` says it.
pub fn write_client_capabilities(out: &mut Vec<u8>, edition: Edition, capabilities: &ClientCapabilities) {
    capabilities.put(out, edition);
}

impl Put for Implementation {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Implementation { name, version, title, description, website, icons } = self;
        Object::open(out, edition)
            .field("name", name)
            .since(E2025_06_18, "title", title)
            .field("version", version)
            .since(E2025_11_25, "description", description)
            .since(E2025_11_25, "websiteUrl", website)
            .since(E2025_11_25, "icons", icons)
            .close();
    }
}

impl Put for ClientCapabilities {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let ClientCapabilities { roots, sampling, elicitation, tasks, extensions, experimental } = self;
        let roots =
            roots.map(|tells| nest(move |object| object.until(E2025_11_25, "listChanged", &Flag(tells))));
        let elicitation = elicitation.filter(|elicitation| has_elicitation(edition, *elicitation));
        let tasks = tasks.map(|TaskCapability { list, cancel, tools: _, sampling, elicitation }| {
            let sampling = sampling.then(|| nest(|object| object.field("createMessage", &Mark(true))));
            let elicitation = elicitation.then(|| nest(|object| object.field("create", &Mark(true))));
            nest(move |object| {
                let requests = (sampling.is_some() || elicitation.is_some()).then(|| {
                    nest(|object| object.some("sampling", &sampling).some("elicitation", &elicitation))
                });
                object.some("list", &Mark(list)).some("cancel", &Mark(cancel)).some("requests", &requests)
            })
        });
        Object::open(out, edition)
            .some("experimental", &Settings(experimental))
            .some("roots", &roots)
            .some("sampling", sampling)
            .since(E2025_06_18, "elicitation", &elicitation)
            .only(E2025_11_25, "tasks", &tasks)
            .since(E2025_11_25, "extensions", &Settings(extensions))
            .close();
    }
}

impl Put for SamplingCapability {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let SamplingCapability { context, tools } = self;
        Object::open(out, edition)
            .since(E2025_11_25, "context", &Mark(*context))
            .since(E2025_11_25, "tools", &Mark(*tools))
            .close();
    }
}

/// Whether anything of it exists in an edition.
fn has_elicitation(edition: Edition, elicitation: ElicitationCapability) -> bool {
    match edition.facts().elicitation {
        Elicitation::Never => false,
        Elicitation::Form => elicitation.form,
        Elicitation::FormAndUrl => elicitation.form || elicitation.url,
    }
}

/// `{}` means forms too, but `form` said aloud is also understood by those who
/// look for it.
impl Put for ElicitationCapability {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let ElicitationCapability { form, url } = self;
        Object::open(out, edition)
            .since(E2025_11_25, "form", &Mark(*form))
            .since(E2025_11_25, "url", &Mark(*url))
            .close();
    }
}

impl Put for ServerCapabilities {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
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
        let list = |tells: bool| nest(move |object| object.some("listChanged", &Flag(tells)));
        let resources = resources.map(|tells| {
            nest(move |object| {
                object.some("subscribe", &Flag(*resource_updates)).some("listChanged", &Flag(tells))
            })
        });
        let tasks = tasks.map(|TaskCapability { list, cancel, tools, sampling: _, elicitation: _ }| {
            let call = || nest(|object| object.field("call", &Mark(true)));
            let requests = tools.then(|| nest(move |object| object.field("tools", &call())));
            nest(move |object| {
                object.some("list", &Mark(list)).some("cancel", &Mark(cancel)).some("requests", &requests)
            })
        });
        Object::open(out, edition)
            .some("experimental", &Settings(experimental))
            .some("logging", &Mark(*logging))
            .since(E2025_03_26, "completions", &Mark(*completions))
            .some("prompts", &prompts.map(list))
            .some("resources", &resources)
            .some("tools", &tools.map(list))
            .only(E2025_11_25, "tasks", &tasks)
            .since(E2025_11_25, "extensions", &Settings(extensions))
            .close();
    }
}

/// Settings by name. Each must be an object, so what is none is left out.
struct Settings<'a>(&'a BTreeMap<String, Raw>);

impl Put for Settings<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let objects = self.0.iter().filter(|(_, settings)| settings.view().is_object());
        objects
            .fold(Object::open(out, edition), |object, (name, settings)| object.entry(name, settings))
            .close();
    }

    fn is_absent(&self) -> bool {
        self.0.is_empty()
    }
}

pub(super) fn read_implementation(field: &Field<'_>) -> Result<Implementation, Fault> {
    let part = field.part("implementation")?;
    let [name, version, title, description, website, icons] =
        &part.pick(["name", "version", "title", "description", "websiteUrl", "icons"]);
    Ok(Implementation {
        name: name.text()?,
        version: version.text()?,
        title: title.maybe_text()?,
        description: description.maybe_text()?,
        website: website.maybe_text()?,
        icons: icons.maybe_list(read_icon)?,
    })
}

pub(super) fn read_client_capabilities(part: &Part<'_>) -> Result<ClientCapabilities, Fault> {
    let [roots, sampling, elicitation, tasks, extensions, experimental] =
        &part.pick(["roots", "sampling", "elicitation", "tasks", "extensions", "experimental"]);
    Ok(ClientCapabilities {
        roots: read_list_changed(roots)?,
        sampling: sampling.maybe_part("sampling")?.map(|part| {
            let [context, tools] = &part.pick(["context", "tools"]);
            SamplingCapability { context: is_marked(context), tools: is_marked(tools) }
        }),
        elicitation: elicitation.maybe_part("elicitation")?.map(|part| {
            let [form, url] = &part.pick(["form", "url"]);
            // Spec, elicitation: an empty object is a client that has forms.
            ElicitationCapability { form: is_marked(form) || !is_marked(url), url: is_marked(url) }
        }),
        tasks: read_tasks(tasks)?,
        extensions: read_settings(extensions)?,
        experimental: read_settings(experimental)?,
    })
}

pub(super) fn read_server_capabilities(part: &Part<'_>) -> Result<ServerCapabilities, Fault> {
    let [tools, prompts, resources, completions, logging, tasks, extensions, experimental] = &part.pick([
        "tools",
        "prompts",
        "resources",
        "completions",
        "logging",
        "tasks",
        "extensions",
        "experimental",
    ]);
    let updates = resources.maybe_part("resources")?.map(|part| part.field("subscribe").maybe_bool());
    Ok(ServerCapabilities {
        tools: read_list_changed(tools)?,
        prompts: read_list_changed(prompts)?,
        resources: read_list_changed(resources)?,
        resource_updates: updates.transpose()?.flatten().unwrap_or(false),
        completions: is_marked(completions),
        logging: is_marked(logging),
        tasks: read_tasks(tasks)?,
        extensions: read_settings(extensions)?,
        experimental: read_settings(experimental)?,
    })
}

fn read_list_changed(field: &Field<'_>) -> Result<Option<bool>, Fault> {
    let Some(part) = field.maybe_part("capability")? else {
        return Ok(None);
    };
    Ok(Some(part.field("listChanged").maybe_bool()?.unwrap_or(false)))
}

fn read_tasks(field: &Field<'_>) -> Result<Option<TaskCapability>, Fault> {
    let Some(part) = field.maybe_part("tasks")? else {
        return Ok(None);
    };
    let [list, cancel, requests] = &part.pick(["list", "cancel", "requests"]);
    let requests = |of: &str, request: &str| {
        let of = requests.value().and_then(|requests| requests.get(of));
        of.and_then(|of| of.get(request)).is_some_and(|mark| !mark.is_null())
    };
    Ok(Some(TaskCapability {
        list: is_marked(list),
        cancel: is_marked(cancel),
        tools: requests("tools", "call"),
        sampling: requests("sampling", "createMessage"),
        elicitation: requests("elicitation", "create"),
    }))
}

/// Declared: by an object, whatever is in it.
fn is_marked(field: &Field<'_>) -> bool {
    field.value().is_some_and(|value| value.is_object())
}

/// What is not declared by an object is not declared.
fn read_settings(field: &Field<'_>) -> Result<BTreeMap<String, Raw>, Fault> {
    field.maybe_map(|entry| Ok(entry.object().ok()))
}
