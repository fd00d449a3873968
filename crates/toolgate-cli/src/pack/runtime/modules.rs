//! Builtins about modules: the packs and the files of the configuration.

use serde_json::{Value, json};

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, find_by_name, list_json};
use crate::clock::format_iso8601;
use crate::pack::PACKS;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "module_get_all" => Builtin::Sync(|context, _| Ok(list_json("modules", list_modules(context)))),
        "module_get_names" => Builtin::Sync(|context, _| {
            let names: Vec<Value> =
                list_modules(context).into_iter().map(|module| module["name"].clone()).collect();
            Ok(json!({ "names": names }))
        }),
        "module_get_info" => Builtin::Sync(find_module),
        "module_get_settings" => Builtin::Sync(|context, arguments| {
            Ok(json!({ "settings": find_module(context, arguments)?["usedBy"].clone() }))
        }),
        "module_get_paths" => Builtin::Sync(|context, _| {
            let snapshot = context.state.snapshot();
            let files: Vec<String> =
                snapshot.config_files.iter().map(|file| file.display().to_string()).collect();
            Ok(json!({ "configuration": snapshot.config_file.display().to_string(), "files": files }))
        }),
        "module_has" => Builtin::Sync(|context, arguments| {
            let name = arguments.require("name")?;
            Ok(json!({ "exists": list_modules(context).iter().any(|module| module["name"] == name) }))
        }),
        "module_get_stats" => Builtin::Sync(|context, _| {
            let snapshot = context.state.snapshot();
            Ok(json!({
                "modules": list_modules(context).len(),
                "files": snapshot.config_files.len(),
                "loads": snapshot.n_loads,
                "lastLoadedAt": format_iso8601(snapshot.loaded_at),
            }))
        }),
        "module_reload" => Builtin::Sync(|context, arguments| {
            find_module(context, arguments)?;
            Ok(request_reload(context))
        }),
        "module_reload_all" => Builtin::Sync(|context, _| Ok(request_reload(context))),
        _ => return None,
    })
}

/// Requests a reload of the configuration, like SIGHUP.
pub(super) fn request_reload(context: &BuiltinContext) -> Value {
    context.state.request_reload();
    json!({
        "requested": true,
        "note": "the whole configuration is reloaded; an invalid file changes nothing and is reported in the log",
    })
}

/// Lists packs and configuration files.
fn list_modules(context: &BuiltinContext) -> Vec<Value> {
    let snapshot = context.state.snapshot();
    let packs = PACKS.iter().map(|pack| {
        let users: Vec<&String> = snapshot
            .servers
            .iter()
            .filter(|server| server.packs.iter().any(|used| used == pack.name))
            .map(|server| &server.name)
            .collect();
        json!({ "name": pack.name, "kind": "pack", "active": !users.is_empty(), "usedBy": users })
    });
    let files = snapshot.config_files.iter().map(|file| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        json!({ "name": name, "kind": "file", "active": true, "path": file.display().to_string() })
    });
    packs.chain(files).collect()
}

fn find_module(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let name = arguments.require("name")?;
    find_by_name("module", name, list_modules(context), |module| module["name"].as_str().unwrap_or_default())
}
