//! Builtins about this process and its machine.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::procfs::{self, NO_PROC, unavailable};
use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinFuture, BuiltinResult, host};
use crate::clock::{format_iso8601, process_start};
use crate::observe::collectors;

const NO_ALLOCATOR: &str = "the system allocator has no statistics that are accessible without unsafe code";

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "process_get_memory_info" => Builtin::Sync(memory_info),
        "process_get_memory_details" => Builtin::Sync(memory_details),
        "process_get_thread_info" => Builtin::Sync(thread_info),
        "process_get_thread_dump" => Builtin::Sync(thread_dump),
        "process_get_hot_threads" => Builtin::Async(hot_threads),
        "process_get_top_allocators" => Builtin::Unavailable(NO_ALLOCATOR),
        "process_get_deadlocks" => Builtin::Unavailable(
            "locks are not monitored: none is held across an await, and `process_get_thread_info` shows blocked threads",
        ),
        "process_get_cpu_info" => Builtin::Sync(cpu_info),
        "process_get_allocator_info" => Builtin::Sync(allocator_info),
        "process_get_loaded_libraries" => Builtin::Sync(libraries),
        "process_get_runtime_info" => Builtin::Sync(runtime_info),
        "process_get_properties" => Builtin::Sync(properties),
        "process_get_environment_variables" => Builtin::Sync(environment_variables),
        "process_get_file_descriptors" => Builtin::Sync(file_descriptors),
        "process_trigger_reclaim" => Builtin::Sync(reclaim),
        "process_trigger_heap_dump" => Builtin::Unavailable("the system allocator cannot write heap dumps"),
        "host_get_operating_system_info" => Builtin::Sync(|_, _| Ok(host::system())),
        "host_get_disk_usage" => Builtin::Sync(|_, arguments| Ok(host::disks(arguments.text("path")))),
        "host_get_load" => Builtin::Sync(|_, _| Ok(host::load())),
        "host_get_network_interfaces" => Builtin::Sync(|_, _| Ok(host::interfaces())),
        "host_get_limits" => Builtin::Sync(|_, _| Ok(limits())),
        "host_get_container_info" => Builtin::Sync(|_, _| Ok(host::container_json())),
        _ => return None,
    })
}

fn memory_info(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let Some(memory) = procfs::memory() else { return Ok(unavailable(NO_PROC)) };
    let limit = host::memory_limit();
    Ok(json!({
        "rssBytes": memory.rss,
        "peakRssBytes": memory.peak,
        "virtualBytes": memory.virtual_size,
        "dataBytes": memory.data,
        "swapBytes": memory.swap,
        "limitBytes": limit,
        "percentOfLimit": host::percent(Some(memory.rss), limit),
    }))
}

fn memory_details(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let Some(text) = procfs::read("/proc/self/smaps_rollup") else { return Ok(unavailable(NO_PROC)) };
    let mut rollup = procfs::parse_smaps_rollup(&text);
    rollup.insert("allocator".into(), unavailable(NO_ALLOCATOR));
    rollup.insert("log".into(), collectors().logs.stats());
    Ok(Value::Object(rollup))
}

fn thread_info(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let Some(threads) = procfs::threads() else { return Ok(unavailable(NO_PROC)) };
    let (mut states, mut names) = (Map::new(), Map::new());
    let count = |counts: &mut Map<String, Value>, key: &str| {
        let before = counts.get(key).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(key.to_owned(), (before + 1).into());
    };
    for thread in &threads {
        count(&mut states, procfs::state_name(thread.state));
        count(&mut names, &thread.name);
    }
    Ok(json!({ "count": threads.len(), "byState": states, "byName": names }))
}

fn thread_dump(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let Some(threads) = procfs::threads() else { return Ok(unavailable(NO_PROC)) };
    let entries: Vec<Value> = threads
        .iter()
        .map(|thread| {
            json!({
                "id": thread.id,
                "name": thread.name,
                "state": procfs::state_name(thread.state),
                "cpuMs": thread.cpu_time.as_secs_f64() * 1000.0,
                "waitsIn": procfs::wait_channel(thread.id),
            })
        })
        .collect();
    Ok(json!({
        "count": entries.len(),
        "threads": entries,
        "stacks": unavailable("thread stacks cannot be read without unsafe code"),
    }))
}

fn hot_threads<'a>(_: &'a BuiltinContext, arguments: BuiltinArguments<'a>) -> BuiltinFuture<'a> {
    Box::pin(async move {
        let Some(before) = procfs::threads() else { return Ok(unavailable(NO_PROC)) };
        let duration =
            Duration::from_millis(arguments.number("durationMs").unwrap_or(3000).clamp(50, 30_000));
        tokio::time::sleep(duration).await;
        let Some(after) = procfs::threads() else { return Ok(unavailable(NO_PROC)) };
        let mut hot: Vec<(f64, Value)> = after
            .iter()
            .map(|thread| {
                let previous = before.iter().find(|previous| previous.id == thread.id);
                let cpu_time = thread
                    .cpu_time
                    .saturating_sub(previous.map_or(Duration::ZERO, |previous| previous.cpu_time));
                let percent = (cpu_time.as_secs_f64() / duration.as_secs_f64() * 1000.0).round() / 10.0;
                let entry = json!({
                    "id": thread.id,
                    "name": thread.name,
                    "state": procfs::state_name(thread.state),
                    "cpuMs": cpu_time.as_secs_f64() * 1000.0,
                    "cpuPercent": percent,
                });
                (percent, entry)
            })
            .collect();
        hot.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let top = usize::try_from(arguments.number("topN").unwrap_or(5)).unwrap_or(5);
        let threads: Vec<Value> = hot.into_iter().take(top).map(|(_, entry)| entry).collect();
        Ok(json!({ "durationMs": duration.as_millis() as u64, "threads": threads }))
    })
}

fn cpu_info(context: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let times = procfs::read("/proc/self/stat").as_deref().and_then(procfs::parse_cpu_times);
    let Some((user, system)) = times else { return Ok(unavailable(NO_PROC)) };
    let uptime = process_start().uptime().as_secs_f64();
    let container = host::cgroup_limits();
    Ok(json!({
        "cpus": host::cpus(),
        "cpuLimit": container.and_then(|container| container.cpu_limit),
        "userMs": user.as_secs_f64() * 1000.0,
        "systemMs": system.as_secs_f64() * 1000.0,
        "averagePercent": if uptime > 0.0 { ((user + system).as_secs_f64() / uptime * 1000.0).round() / 10.0 } else { 0.0 },
        "runtimeLoadPercent": (context.state.heartbeat().load * 1000.0).round() / 10.0,
        "host": host::load(),
    }))
}

fn allocator_info(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    Ok(json!({
        "allocator": "system",
        "garbageCollector": null,
        "note": "Rust frees memory deterministically; there is no garbage collector",
        "statistics": unavailable(NO_ALLOCATOR),
        "dataBytes": procfs::memory().map(|memory| memory.data),
    }))
}

fn libraries(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let Some(maps) = procfs::read("/proc/self/maps") else { return Ok(unavailable(NO_PROC)) };
    let libraries = procfs::parse_libraries(&maps);
    let entries: Vec<Value> =
        libraries.iter().map(|(path, bytes)| json!({ "path": path, "mappedBytes": bytes })).collect();
    Ok(super::list_json("libraries", entries))
}

fn runtime_info(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let start = process_start();
    let folder = std::env::current_dir().ok().map(|folder| folder.display().to_string());
    let program = std::env::current_exe().ok().map(|program| program.display().to_string());
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(json!({
        "pid": std::process::id(),
        "program": program,
        "arguments": arguments,
        "workingDirectory": folder,
        "user": user(),
        "startedAt": format_iso8601(start.unix_millis),
        "uptimeMs": u64::try_from(start.uptime().as_millis()).unwrap_or(u64::MAX),
    }))
}

#[cfg(unix)]
fn user() -> Value {
    json!({ "uid": rustix::process::getuid().as_raw(), "gid": rustix::process::getgid().as_raw() })
}

#[cfg(not(unix))]
fn user() -> Value {
    Value::Null
}

fn properties(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    Ok(json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "family": std::env::consts::FAMILY,
        "pointerBits": usize::BITS,
        "debugAssertions": cfg!(debug_assertions),
        "panic": if cfg!(panic = "unwind") { "unwind" } else { "abort" },
        "limits": limits(),
    }))
}

fn limits() -> Value {
    let Some(text) = procfs::read("/proc/self/limits") else { return unavailable(NO_PROC) };
    let entries = procfs::parse_limits(&text)
        .into_iter()
        .map(|(name, soft, hard, unit)| (name, json!({ "soft": soft, "hard": hard, "unit": unit })));
    Value::Object(entries.collect())
}

/// Lists environment variables; most values are masked.
fn environment_variables(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let prefix = arguments.text("prefix").unwrap_or_default();
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    variables.sort();
    Ok(mask_environment(variables))
}

/// Variables whose values are shown. Any other may hold a secret, whatever its name, so only its name is shown.
const VISIBLE_VARIABLES: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "PWD",
    "HOSTNAME",
    "TMPDIR",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "INVOCATION_ID",
    "KUBERNETES_SERVICE_HOST",
    "NODE_NAME",
    "POD_NAME",
];

/// Masks all values except those of harmless variables.
pub(super) fn mask_environment(variables: Vec<(String, String)>) -> Value {
    let is_shown = |name: &str| VISIBLE_VARIABLES.contains(&name) || name.starts_with("LC_");
    let members = variables.into_iter().map(|(name, value)| {
        let value = if is_shown(&name) { crate::config::redact_url(&value) } else { "***".to_owned() };
        (name, Value::String(value))
    });
    Value::Object(members.collect())
}

fn file_descriptors(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let Some(descriptors) = procfs::descriptors() else { return Ok(unavailable(NO_PROC)) };
    let limit = procfs::file_limit();
    let kinds = procfs::count_by_kind(descriptors.iter().map(|(_, target)| target.as_str()));
    let entries: Vec<Value> = descriptors
        .iter()
        .take(arguments.limit(100))
        .map(|(number, target)| json!({ "fd": number, "target": target }))
        .collect();
    Ok(json!({
        "open": descriptors.len(),
        "limit": limit,
        "percent": host::percent(Some(descriptors.len() as u64), limit),
        "byKind": kinds,
        "descriptors": entries,
    }))
}

fn reclaim(_: &BuiltinContext, _: BuiltinArguments<'_>) -> BuiltinResult {
    let before = procfs::memory();
    super::caches::shrink_buffers();
    let after = procfs::memory();
    Ok(json!({
        "rssBytesBefore": before.map(|memory| memory.rss),
        "rssBytesAfter": after.map(|memory| memory.rss),
        "note": "unused buffer memory was released; the allocator decides when to return it to the system",
    }))
}
