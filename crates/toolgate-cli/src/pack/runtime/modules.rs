//! Builtins about modules: the packs and the files of the configuration.

use serde_json::{Value, json};

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, find_by_name, list_json};
use crate::clock::format_iso8601;
use crate::pack::PACKS;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "module_get_all" => Builtin::Sync(|here, _| Ok(list_json("modules", list_modules(here)))),
        "module_get_names" => Builtin::Sync(|here, _| {
            let names: Vec<Value> =
                list_modules(here).into_iter().map(|module| module["name"].clone()).collect();
            Ok(json!({ "names": names }))
        }),
        "module_get_info" => Builtin::Sync(find_module),
        "module_get_settings" => Builtin::Sync(|here, given| {
            Ok(json!({ "settings": find_module(here, given)?["usedBy"].clone() }))
        }),
        "module_get_paths" => Builtin::Sync(|here, _| {
            let seen = here.state.snapshot();
            let files: Vec<String> =
                seen.config_files.iter().map(|file| file.display().to_string()).collect();
            Ok(json!({ "configuration": seen.config_file.display().to_string(), "files": files }))
        }),
        "module_has" => Builtin::Sync(|here, given| {
            let name = given.require("name")?;
            Ok(json!({ "exists": list_modules(here).iter().any(|module| module["name"] == name) }))
        }),
        "module_get_stats" => Builtin::Sync(|here, _| {
            let seen = here.state.snapshot();
            Ok(json!({
                "modules": list_modules(here).len(),
                "files": seen.config_files.len(),
                "loads": seen.n_loads,
                "lastLoadedAt": format_iso8601(seen.loaded_at),
            }))
        }),
        "module_reload" => Builtin::Sync(|here, given| {
            find_module(here, given)?;
            Ok(request_reload(here))
        }),
        "module_reload_all" => Builtin::Sync(|here, _| Ok(request_reload(here))),
        _ => return None,
    })
}

/// The file is read again, as if somebody had asked the process to.
pub(super) fn request_reload(here: &BuiltinContext) -> Value {
    here.state.reload.notify_one();
    json!({
        "requested": true,
        "note": "the configuration is read again as a whole; a file that is wrong changes nothing, and the log says why",
    })
}

/// Packs, and files of the configuration.
fn list_modules(here: &BuiltinContext) -> Vec<Value> {
    let seen = here.state.snapshot();
    let packs = PACKS.iter().map(|pack| {
        let users: Vec<&String> = seen
            .servers
            .iter()
            .filter(|server| server.packs.iter().any(|used| used == pack.name))
            .map(|server| &server.name)
            .collect();
        json!({ "name": pack.name, "kind": "pack", "active": !users.is_empty(), "usedBy": users })
    });
    let files = seen.config_files.iter().map(|file| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        json!({ "name": name, "kind": "file", "active": true, "path": file.display().to_string() })
    });
    packs.chain(files).collect()
}

fn find_module(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = given.require("name")?;
    find_by_name("module", name, list_modules(here), |module| module["name"].as_str().unwrap_or_default())
}
