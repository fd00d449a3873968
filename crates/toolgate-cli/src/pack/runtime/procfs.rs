//! Reads facts about this process from `/proc`, if the system has it.
//!
//! Parsing is separate from reading, so that it is tested on any machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// The reason for values that are read from `/proc`.
pub(super) const NO_PROC: &str = "this system has no /proc";

/// Clock ticks per second in `/proc`; Linux reports 100 on every machine.
const TICKS_PER_SECOND: u64 = 100;

/// Reads a file, or returns `None` if it does not exist.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses lines such as `VmRSS:\t   5124 kB` into names and values.
pub(super) fn parse_pairs(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect()
}

/// Parses `5124 kB` into bytes; a number without a unit is in bytes.
pub(super) fn parse_bytes(value: &str) -> Option<u64> {
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024),
        _ => Some(number),
    }
}

/// Memory usage of the process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessMemory {
    pub(super) rss: u64,
    pub(super) peak: u64,
    pub(super) virtual_size: u64,
    pub(super) swap: u64,
    pub(super) data: u64,
    pub(super) threads: u64,
}

pub(super) fn parse_status(status: &str) -> ProcessMemory {
    let pairs = parse_pairs(status);
    let get = |name: &str| pairs.get(name).and_then(|value| parse_bytes(value)).unwrap_or(0);
    ProcessMemory {
        rss: get("VmRSS"),
        peak: get("VmHWM"),
        virtual_size: get("VmSize"),
        swap: get("VmSwap"),
        data: get("VmData"),
        threads: get("Threads"),
    }
}

/// The current memory usage, or `None` without `/proc`.
pub(super) fn memory() -> Option<ProcessMemory> {
    read("/proc/self/status").map(|status| parse_status(&status))
}

/// Parses `smaps_rollup` into bytes, with JSON names: `rssBytes`, `pssAnonBytes`.
pub(super) fn parse_smaps_rollup(text: &str) -> Map<String, Value> {
    let mut result = Map::new();
    for (name, value) in parse_pairs(text) {
        if let Some(bytes) = value.ends_with("kB").then(|| parse_bytes(value)).flatten() {
            let mut key: String = name.replace(['_', '(', ')'], "");
            if let Some(first) = key.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            result.insert(format!("{key}Bytes"), bytes.into());
        }
    }
    result
}

/// A thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadInfo {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) state: char,
    /// CPU time.
    pub(super) cpu_time: Duration,
}

/// Parses `4711 (a name) with) S 1 …`: the name may contain anything, and ends at the last parenthesis.
pub(super) fn parse_thread_stat(stat: &str) -> Option<ThreadInfo> {
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let id = stat.get(..start)?.trim().parse().ok()?;
    let name = stat.get(start + 1..end)?.to_owned();
    let rest: Vec<&str> = stat.get(end + 1..)?.split_whitespace().collect();
    let state = rest.first()?.chars().next()?;
    let ticks: u64 = rest.get(11)?.parse::<u64>().ok()? + rest.get(12)?.parse::<u64>().ok()?;
    Some(ThreadInfo { id, name, state, cpu_time: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND) })
}

/// Parses `schedstat`: CPU time in nanoseconds, if the kernel provides it.
pub(super) fn parse_schedstat(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The name of a thread state.
pub(super) fn state_name(letter: char) -> &'static str {
    match letter {
        'R' => "running",
        'S' => "sleeping",
        'D' => "blocked",
        'T' | 't' => "stopped",
        'Z' => "zombie",
        'I' => "idle",
        _ => "other",
    }
}

/// All threads of this process, or `None` without `/proc`.
pub(super) fn threads() -> Option<Vec<ThreadInfo>> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let threads = tasks.filter_map(Result::ok).filter_map(|task| {
        let mut thread = parse_thread_stat(&read(task.path().join("stat"))?)?;
        if let Some(cpu_time) = read(task.path().join("schedstat")).as_deref().and_then(parse_schedstat) {
            thread.cpu_time = cpu_time;
        }
        Some(thread)
    });
    let mut threads: Vec<ThreadInfo> = threads.collect();
    threads.sort_by_key(|thread| thread.id);
    Some(threads)
}

/// The kernel function a thread waits in, if it may be read.
pub(super) fn wait_channel(thread: u64) -> Option<String> {
    read(format!("/proc/self/task/{thread}/wchan")).filter(|channel| !channel.is_empty() && channel != "0")
}

/// Parses `Max open files  1024  4096  files`: name, soft limit, hard limit, unit.
pub(super) fn parse_limits(text: &str) -> Vec<(String, Value, Value, String)> {
    let number = |word: &str| word.parse::<u64>().map_or(Value::Null, Value::from);
    let rows = text.lines().skip(1).filter_map(|line| {
        // Columns are separated by at least two spaces.
        let mut columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
        let (name, soft, hard) = (columns.next()?, columns.next()?, columns.next()?);
        Some((name.to_owned(), number(soft), number(hard), columns.next().unwrap_or_default().to_owned()))
    });
    rows.collect()
}

/// The soft limit for open files.
pub(super) fn file_limit() -> Option<u64> {
    let text = read("/proc/self/limits")?;
    let result = parse_limits(&text).into_iter().find(|(name, ..)| name == "Max open files")?;
    result.1.as_u64()
}

/// Counts file descriptor targets by kind.
pub(super) fn count_by_kind<'a>(targets: impl Iterator<Item = &'a str>) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for target in targets {
        let kind = match target {
            _ if target.starts_with("socket:") => "socket",
            _ if target.starts_with("pipe:") => "pipe",
            _ if target.starts_with("anon_inode:") => "anonymous",
            _ if target.starts_with("/dev/") => "device",
            _ => "file",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

/// All file descriptors with their targets, or `None` without `/proc`.
pub(super) fn descriptors() -> Option<Vec<(u64, String)>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let result = entries.filter_map(Result::ok).filter_map(|entry| {
        let number = entry.file_name().to_string_lossy().parse().ok()?;
        Some((number, std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
    });
    let mut result: Vec<(u64, String)> = result.collect();
    result.sort();
    Some(result)
}

/// Parses `maps` into executable mapped files (libraries and the program) and their mapped bytes.
pub(super) fn parse_libraries(maps: &str) -> BTreeMap<String, u64> {
    let mut result: BTreeMap<String, (u64, bool)> = BTreeMap::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(mode)) = (words.next(), words.next()) else { continue };
        let path = words.skip(3).collect::<Vec<_>>().join(" ");
        if !path.starts_with('/') {
            continue;
        }
        let size = range.split_once('-').and_then(|(from, to)| {
            u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)
        });
        let entry = result.entry(path).or_default();
        entry.0 += size.unwrap_or(0);
        entry.1 |= mode.contains('x');
    }
    result.into_iter().filter(|(_, (_, is_code))| *is_code).map(|(path, (size, _))| (path, size)).collect()
}

/// Parses `stat`: user and system CPU time of this process.
pub(super) fn parse_cpu_times(stat: &str) -> Option<(Duration, Duration)> {
    let rest: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let ticks = |index: usize| {
        Some(Duration::from_millis(rest.get(index)?.parse::<u64>().ok()? * 1000 / TICKS_PER_SECOND))
    };
    Some((ticks(11)?, ticks(12)?))
}

/// The result for a value that is not available.
pub(super) fn unavailable(reason: &str) -> Value {
    json!({ "available": false, "reason": reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\ttoolgate\nVmPeak:\t  9000 kB\nVmSize:\t  8000 kB\nVmHWM:\t 600 kB\nVmRSS:\t     512 kB\nVmData:\t 100 kB\nVmSwap:\t 1 kB\nThreads:\t5\n";
        let wanted = ProcessMemory {
            rss: 512 << 10,
            peak: 600 << 10,
            virtual_size: 8000 << 10,
            swap: 1024,
            data: 100 << 10,
            threads: 5,
        };
        assert_eq!(parse_status(status), wanted);
        assert_eq!(parse_status("nothing of it"), ProcessMemory::default());
    }

    #[test]
    fn smaps_rollup_has_json_names() {
        let text = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:   4300 kB\nPss_Anon:  10 kB\nShared_Clean: 0 kB\n";
        let result = parse_smaps_rollup(text);
        assert_eq!(result["rssBytes"], 4300 * 1024);
        assert_eq!(result["pssAnonBytes"], 10 * 1024);
        assert_eq!(result["sharedCleanBytes"], 0);
        assert_eq!(result.len(), 3);
    }

    #[test]
    fn threads_may_have_any_name() {
        let stat = "4711 (tokio) (x)) S 1 4711 4711 0 -1 1077936192 5 0 0 0 25 75 0 0 20 0 9 0 100 0 0";
        let thread = parse_thread_stat(stat).unwrap();
        assert_eq!((thread.id, thread.name.as_str(), thread.state), (4711, "tokio) (x)", 'S'));
        assert_eq!(thread.cpu_time, Duration::from_secs(1));
        assert_eq!(parse_cpu_times(stat), Some((Duration::from_millis(250), Duration::from_millis(750))));
        assert_eq!(parse_thread_stat("nonsense"), None);
        assert_eq!(parse_thread_stat(") (x"), None);
        assert_eq!(parse_schedstat("12345 1 2\n"), Some(Duration::from_nanos(12_345)));
    }

    #[test]
    fn limits_are_numbers_or_none() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max cpu time              unlimited            unlimited            seconds   \n\
            Max open files            1024                 524288               files     \n\
            Max nice priority         0                    0                    \n";
        let limits = parse_limits(text);
        assert_eq!(limits[0].0, "Max cpu time");
        assert_eq!(limits[0].1, Value::Null);
        assert_eq!(limits[1], ("Max open files".to_owned(), json!(1024), json!(524_288), "files".to_owned()));
        assert_eq!(limits[2].3, "");
    }

    #[test]
    fn descriptors_are_counted_by_kind() {
        let targets = [
            "socket:[1]",
            "socket:[2]",
            "pipe:[3]",
            "anon_inode:[eventpoll]",
            "/dev/null",
            "/var/x (deleted)",
        ];
        let kinds = count_by_kind(targets.into_iter());
        assert_eq!(kinds.get("socket"), Some(&2));
        assert_eq!(kinds.get("file"), Some(&1));
        assert_eq!(kinds.values().sum::<usize>(), 6);
    }

    #[test]
    fn libraries_are_executable_mappings() {
        let maps = "7f00-8000 r--p 0 08:01 1 /lib/libc.so.6\n8000-9000 r-xp 0 08:01 1 /lib/libc.so.6\n\
            9000-a000 r--p 0 08:01 2 /usr/share/a file\na000-b000 rw-p 0 00:00 0 [heap]\nb000-c000 r-xp 0 00:00 0 [vdso]\n";
        let result = parse_libraries(maps);
        assert_eq!(result.into_iter().collect::<Vec<_>>(), [("/lib/libc.so.6".to_owned(), 0x1100)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_can_be_read() {
        assert!(memory().unwrap().rss > 0);
        assert!(threads().unwrap().iter().any(|thread| thread.id == u64::from(std::process::id())));
        assert!(!descriptors().unwrap().is_empty());
        assert!(file_limit().unwrap() > 0);
        let maps = read("/proc/self/maps").unwrap();
        assert!(!parse_libraries(&maps).is_empty());
    }
}
