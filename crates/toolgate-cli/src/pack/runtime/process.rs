//! Acts about this process and the machine it runs on.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::proc::{self, unavailable};
use super::{Deed, Given, Here, Said, Waiting, host};
use crate::clock::{birth, iso8601};
use crate::observe::collectors;

const NO_PROC: &str = "this system has no /proc";
const NO_ALLOCATOR: &str =
    "the allocator of the system tells nothing, and cannot be asked without unsafe code";

pub(super) fn deed(name: &str) -> Option<Deed> {
    Some(match name {
        "process_get_memory_info" => Deed::Now(memory_info),
        "process_get_memory_details" => Deed::Now(memory_details),
        "process_get_thread_info" => Deed::Now(thread_info),
        "process_get_thread_dump" => Deed::Now(thread_dump),
        "process_get_hot_threads" => Deed::Later(hot_threads),
        "process_get_top_allocators" => Deed::Never(NO_ALLOCATOR),
        "process_get_deadlocks" => Deed::Never(
            "locks are not watched: none is held while anything is waited for, and `process_get_thread_info` shows blocked threads",
        ),
        "process_get_cpu_info" => Deed::Now(cpu_info),
        "process_get_allocator_info" => Deed::Now(allocator_info),
        "process_get_loaded_libraries" => Deed::Now(libraries),
        "process_get_runtime_info" => Deed::Now(runtime_info),
        "process_get_properties" => Deed::Now(properties),
        "process_get_environment_variables" => Deed::Now(environment),
        "process_get_file_descriptors" => Deed::Now(descriptors),
        "process_trigger_reclaim" => Deed::Now(reclaim),
        "process_trigger_heap_dump" => {
            Deed::Never("the allocator of the system cannot write down what it holds")
        }
        "host_get_operating_system_info" => Deed::Now(|_, _| Ok(host::system())),
        "host_get_disk_usage" => Deed::Now(|_, given| Ok(host::disks(given.text("path")))),
        "host_get_load" => Deed::Now(|_, _| Ok(host::load())),
        "host_get_network_interfaces" => Deed::Now(|_, _| Ok(host::interfaces())),
        "host_get_limits" => Deed::Now(|_, _| Ok(limits())),
        "host_get_container_info" => Deed::Now(|_, _| Ok(host::container_shown())),
        _ => return None,
    })
}

fn memory_info(_: &Here, _: Given<'_>) -> Said {
    let Some(memory) = proc::memory() else { return Ok(unavailable(NO_PROC)) };
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

fn memory_details(_: &Here, _: Given<'_>) -> Said {
    let Some(text) = proc::read("/proc/self/smaps_rollup") else { return Ok(unavailable(NO_PROC)) };
    let mut rollup = proc::rollup_of(&text);
    rollup.insert("allocator".into(), unavailable(NO_ALLOCATOR));
    rollup.insert("log".into(), collectors().logs.stats());
    Ok(Value::Object(rollup))
}

fn thread_info(_: &Here, _: Given<'_>) -> Said {
    let Some(threads) = proc::threads() else { return Ok(unavailable(NO_PROC)) };
    let (mut states, mut names) = (Map::new(), Map::new());
    let count = |counts: &mut Map<String, Value>, key: &str| {
        let before = counts.get(key).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(key.to_owned(), (before + 1).into());
    };
    for thread in &threads {
        count(&mut states, proc::state(thread.state));
        count(&mut names, &thread.name);
    }
    Ok(json!({ "count": threads.len(), "byState": states, "byName": names }))
}

fn thread_dump(_: &Here, _: Given<'_>) -> Said {
    let Some(threads) = proc::threads() else { return Ok(unavailable(NO_PROC)) };
    let shown: Vec<Value> = threads
        .iter()
        .map(|thread| {
            json!({
                "id": thread.id,
                "name": thread.name,
                "state": proc::state(thread.state),
                "cpuMs": thread.busy.as_secs_f64() * 1000.0,
                "waitsIn": proc::waits_in(thread.id),
            })
        })
        .collect();
    Ok(json!({
        "count": shown.len(),
        "threads": shown,
        "stacks": unavailable("stacks of threads cannot be walked from inside without unsafe code"),
    }))
}

fn hot_threads<'a>(_: &'a Here, given: Given<'a>) -> Waiting<'a> {
    Box::pin(async move {
        let Some(before) = proc::threads() else { return Ok(unavailable(NO_PROC)) };
        let time = Duration::from_millis(given.number("durationMs").unwrap_or(3000).clamp(50, 30_000));
        tokio::time::sleep(time).await;
        let Some(after) = proc::threads() else { return Ok(unavailable(NO_PROC)) };
        let mut hot: Vec<(f64, Value)> = after
            .iter()
            .map(|thread| {
                let known = before.iter().find(|known| known.id == thread.id);
                let spent = thread.busy.saturating_sub(known.map_or(Duration::ZERO, |known| known.busy));
                let percent = (spent.as_secs_f64() / time.as_secs_f64() * 1000.0).round() / 10.0;
                let shown = json!({
                    "id": thread.id,
                    "name": thread.name,
                    "state": proc::state(thread.state),
                    "cpuMs": spent.as_secs_f64() * 1000.0,
                    "cpuPercent": percent,
                });
                (percent, shown)
            })
            .collect();
        hot.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let top = usize::try_from(given.number("topN").unwrap_or(5)).unwrap_or(5);
        let threads: Vec<Value> = hot.into_iter().take(top).map(|(_, shown)| shown).collect();
        Ok(json!({ "durationMs": time.as_millis() as u64, "threads": threads }))
    })
}

fn cpu_info(here: &Here, _: Given<'_>) -> Said {
    let times = proc::read("/proc/self/stat").as_deref().and_then(proc::times_of);
    let Some((own, system)) = times else { return Ok(unavailable(NO_PROC)) };
    let age = birth().age().as_secs_f64();
    let container = host::container();
    Ok(json!({
        "cpus": host::cpus(),
        "cpuLimit": container.and_then(|container| container.cpu_limit),
        "userMs": own.as_secs_f64() * 1000.0,
        "systemMs": system.as_secs_f64() * 1000.0,
        "averagePercent": if age > 0.0 { ((own + system).as_secs_f64() / age * 1000.0).round() / 10.0 } else { 0.0 },
        "runtimeLoadPercent": (here.world.pulse().load * 1000.0).round() / 10.0,
        "host": host::load(),
    }))
}

fn allocator_info(_: &Here, _: Given<'_>) -> Said {
    Ok(json!({
        "allocator": "system",
        "garbageCollector": null,
        "note": "memory is freed where it is last used; there is nothing to collect",
        "statistics": unavailable(NO_ALLOCATOR),
        "dataBytes": proc::memory().map(|memory| memory.data),
    }))
}

fn libraries(_: &Here, _: Given<'_>) -> Said {
    let Some(maps) = proc::read("/proc/self/maps") else { return Ok(unavailable(NO_PROC)) };
    let found = proc::libraries_of(&maps);
    let shown: Vec<Value> =
        found.iter().map(|(path, bytes)| json!({ "path": path, "mappedBytes": bytes })).collect();
    Ok(super::listed("libraries", shown))
}

fn runtime_info(_: &Here, _: Given<'_>) -> Said {
    let birth = birth();
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
        "startedAt": iso8601(birth.unix_millis),
        "uptimeMs": u64::try_from(birth.age().as_millis()).unwrap_or(u64::MAX),
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

fn properties(_: &Here, _: Given<'_>) -> Said {
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
    let Some(text) = proc::read("/proc/self/limits") else { return unavailable(NO_PROC) };
    let shown = proc::limits_of(&text)
        .into_iter()
        .map(|(name, soft, hard, unit)| (name, json!({ "soft": soft, "hard": hard, "unit": unit })));
    Value::Object(shown.collect())
}

/// What the environment holds.
fn environment(_: &Here, given: Given<'_>) -> Said {
    let prefix = given.text("prefix").unwrap_or_default();
    let mut found: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    found.sort();
    Ok(masked(found))
}

/// What is shown of the environment. Anything may hold a secret, and names do not tell: only what is known to be harmless
/// is shown, and of the rest that it is there.
const HARMLESS: [&str; 18] = [
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

/// Names and values without secrets.
pub(super) fn masked(found: Vec<(String, String)>) -> Value {
    let is_shown = |name: &str| HARMLESS.contains(&name) || name.starts_with("LC_");
    let members = found.into_iter().map(|(name, value)| {
        let value = if is_shown(&name) { crate::config::address(&value) } else { "***".to_owned() };
        (name, Value::String(value))
    });
    Value::Object(members.collect())
}

fn descriptors(_: &Here, given: Given<'_>) -> Said {
    let Some(found) = proc::descriptors() else { return Ok(unavailable(NO_PROC)) };
    let limit = proc::file_limit();
    let kinds = proc::kinds_of(found.iter().map(|(_, target)| target.as_str()));
    let shown: Vec<Value> = found
        .iter()
        .take(given.limit(100))
        .map(|(number, target)| json!({ "fd": number, "target": target }))
        .collect();
    Ok(json!({
        "open": found.len(),
        "limit": limit,
        "percent": host::percent(Some(found.len() as u64), limit),
        "byKind": kinds,
        "descriptors": shown,
    }))
}

fn reclaim(here: &Here, _: Given<'_>) -> Said {
    let before = proc::memory();
    super::parts::forget(&here.world);
    let after = proc::memory();
    Ok(json!({
        "rssBytesBefore": before.map(|memory| memory.rss),
        "rssBytesAfter": after.map(|memory| memory.rss),
        "note": "room that buffers do not need was given back; when the allocator gives it to the system is its own business",
    }))
}
