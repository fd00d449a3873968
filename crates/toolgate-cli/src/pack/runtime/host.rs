//! Facts about the machine, and about the limits of this process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::procfs::{NO_PROC, parse_bytes, parse_pairs, read, unavailable};

/// Parses `0.20 0.18 0.12 1/80 11206`: three averages, then running and all threads.
pub(super) fn parse_loadavg(text: &str) -> Option<Value> {
    let mut words = text.split_whitespace();
    let mut number = || words.next()?.parse::<f64>().ok();
    let (one, five, fifteen) = (number()?, number()?, number()?);
    let (running, all) = words.next()?.split_once('/')?;
    Some(json!({
        "load1": one,
        "load5": five,
        "load15": fifteen,
        "runningThreads": running.parse::<u64>().ok()?,
        "threads": all.parse::<u64>().ok()?,
    }))
}

pub(super) fn load() -> Value {
    let Some(mut load) = read("/proc/loadavg").as_deref().and_then(parse_loadavg) else {
        return unavailable(NO_PROC);
    };
    let cpus = cpus();
    load["cpus"] = cpus.into();
    load["loadPerCpu"] = (load["load1"].as_f64().unwrap_or(0.0) / cpus as f64).into();
    load
}

/// The number of CPUs that this process may use.
pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Parses `/proc/meminfo`: total, available and swap, in bytes.
pub(super) fn parse_meminfo(text: &str) -> Value {
    let pairs = parse_pairs(text);
    let get = |name: &str| pairs.get(name).and_then(|value| parse_bytes(value));
    let (total, available) = (get("MemTotal"), get("MemAvailable"));
    let used = total.zip(available).map(|(total, available)| total.saturating_sub(available));
    json!({
        "totalBytes": total,
        "availableBytes": available,
        "usedBytes": used,
        "usedPercent": percent(used, total),
        "swapTotalBytes": get("SwapTotal"),
        "swapFreeBytes": get("SwapFree"),
    })
}

pub(super) fn percent(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = (part?, whole.filter(|whole| *whole > 0)?);
    Some((part as f64 * 1000.0 / whole as f64).round() / 10.0)
}

/// Parses the name from the `KEY="value"` lines of `os-release`.
pub(super) fn parse_os_release(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

pub(super) fn system() -> Value {
    let kernel = read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
    let host = read("/proc/sys/kernel/hostname").map(|text| text.trim().to_owned());
    let uptime = read("/proc/uptime").and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "name": read("/etc/os-release").as_deref().and_then(parse_os_release),
        "kernel": kernel,
        "hostname": host,
        "uptimeSeconds": uptime,
        "cpus": cpus(),
        "memory": read("/proc/meminfo").map(|text| parse_meminfo(&text)),
        "load": read("/proc/loadavg").as_deref().and_then(parse_loadavg),
    })
}

/// Parses `/proc/mounts`: device, mount point and type of real file systems, each device once. Spaces are escaped as
/// `\\040`.
pub(super) fn parse_mounts(text: &str) -> Vec<(String, String, String)> {
    let mut result: Vec<(String, String, String)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(device), Some(mount_point), Some(kind)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let is_real =
            device.starts_with('/') || matches!(kind, "overlay" | "tmpfs" | "zfs" | "btrfs" | "nfs" | "nfs4");
        if is_real && !result.iter().any(|(known, ..)| known == device && kind != "tmpfs") {
            result.push((device.to_owned(), mount_point.replace("\\040", " "), kind.to_owned()));
        }
    }
    result
}

/// Disk usage of one path, or of all file systems.
#[cfg(unix)]
pub(super) fn disks(path: Option<&str>) -> Value {
    let usage = |path: &str| -> Option<Value> {
        let stat = rustix::fs::statvfs(path).ok()?;
        let (total, free) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
        let used = total.saturating_sub(stat.f_bfree * stat.f_frsize);
        Some(json!({
            "path": path,
            "totalBytes": total,
            "usedBytes": used,
            "availableBytes": free,
            // Like `df`: relative to the space that is available to users other than root.
            "usedPercent": percent(Some(used), Some(used + free)),
            "inodes": stat.f_files,
            "inodesFree": stat.f_ffree,
        }))
    };
    if let Some(path) = path {
        return usage(path).unwrap_or_else(|| unavailable("the path does not exist or cannot be read"));
    }
    let Some(mounts) = read("/proc/mounts") else {
        return json!({ "disks": usage(".").into_iter().collect::<Vec<_>>() });
    };
    let disks = parse_mounts(&mounts).into_iter().filter_map(|(device, mount_point, kind)| {
        let mut disk = usage(&mount_point).filter(|disk| disk["totalBytes"] != 0)?;
        disk["device"] = device.into();
        disk["type"] = kind.into();
        Some(disk)
    });
    json!({ "disks": disks.collect::<Vec<_>>() })
}

#[cfg(not(unix))]
pub(super) fn disks(_: Option<&str>) -> Value {
    unavailable("file systems are measured on unix only")
}

/// Parses `/proc/net/dev`: received and sent bytes, packets, errors, drops.
pub(super) fn parse_net_dev(text: &str) -> Vec<(String, Value)> {
    let rows = text.lines().skip(2).filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [bytes, packets, errors, drops, _, _, _, _, sent, sent_packets, sent_errors, sent_drops, ..] =
            numbers[..]
        else {
            return None;
        };
        let entry = json!({
            "rxBytes": bytes, "rxPackets": packets, "rxErrors": errors, "rxDropped": drops,
            "txBytes": sent, "txPackets": sent_packets, "txErrors": sent_errors, "txDropped": sent_drops,
        });
        Some((name.trim().to_owned(), entry))
    });
    rows.collect()
}

/// Parses `if_inet6` into addresses by interface: `fe80…(32 digits) 02 40 20 80 eth0`.
pub(super) fn parse_if_inet6(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut result: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, length, _, _, name] = words[..] else { continue };
        let (Ok(address), Ok(length)) = (u128::from_str_radix(address, 16), u8::from_str_radix(length, 16))
        else {
            continue;
        };
        let address = std::net::Ipv6Addr::from(address);
        result.entry(name.to_owned()).or_default().push(format!("{address}/{length}"));
    }
    result
}

/// Parses `fib_trie` into the local addresses: a leaf, followed by its type.
pub(super) fn parse_local_ipv4(text: &str) -> Vec<String> {
    let mut result: Vec<String> = Vec::new();
    let mut leaf = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<std::net::Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = leaf.take()
            && !result.contains(&address.to_string())
        {
            result.push(address.to_string());
        }
    }
    result
}

pub(super) fn interfaces() -> Value {
    let Some(traffic) = read("/proc/net/dev") else { return unavailable(NO_PROC) };
    let ipv6 = read("/proc/net/if_inet6").map(|text| parse_if_inet6(&text)).unwrap_or_default();
    let interfaces = parse_net_dev(&traffic).into_iter().map(|(name, mut entry)| {
        let directory = PathBuf::from("/sys/class/net").join(&name);
        let read_file = |file: &str| read(directory.join(file)).map(|text| text.trim().to_owned());
        entry["state"] = read_file("operstate").into();
        entry["mtu"] = read_file("mtu").and_then(|mtu| mtu.parse::<u64>().ok()).into();
        entry["mac"] = read_file("address").into();
        entry["ipv6"] = ipv6.get(&name).cloned().unwrap_or_default().into();
        entry["name"] = name.into();
        entry
    });
    let interfaces: Vec<Value> = interfaces.collect();
    let local_ipv4 = read("/proc/net/fib_trie").map(|text| parse_local_ipv4(&text));
    json!({ "interfaces": interfaces, "ipv4": local_ipv4 })
}

/// Limits of the control group of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CgroupLimits {
    pub(super) version: u8,
    pub(super) memory_limit: Option<u64>,
    pub(super) memory_used: Option<u64>,
    /// Number of CPUs, may be a fraction.
    pub(super) cpu_limit: Option<f64>,
    pub(super) pids_limit: Option<u64>,
    pub(super) throttled_periods: Option<u64>,
}

/// Parses a cgroup limit; `max`, and the huge number that version 1 uses for it, are `None`.
pub(super) fn parse_cgroup_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

/// Parses `max 100000` or `50000 100000`: a quota and its period.
pub(super) fn parse_cpu_quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Parses `/proc/self/cgroup` into paths by controller; the empty name is version 2.
pub(super) fn parse_cgroups(text: &str) -> BTreeMap<String, String> {
    let mut result = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (parts.next(), parts.next()) else { continue };
        for name in names.split(',') {
            result.insert(name.to_owned(), path.to_owned());
        }
    }
    result
}

/// Returns `None` if there are no control groups.
pub(super) fn cgroup_limits() -> Option<CgroupLimits> {
    let groups = parse_cgroups(&read("/proc/self/cgroup")?);
    // In a container with its own namespace, the path is `/` or not visible from inside; then the root is used.
    let file = |root: &str, path: &str, name: &str| {
        let inner = PathBuf::from(format!("/sys/fs/cgroup{root}{path}")).join(name);
        read(inner).or_else(|| read(PathBuf::from(format!("/sys/fs/cgroup{root}")).join(name)))
    };
    if let Some(path) = groups.get("").filter(|_| PathBuf::from("/sys/fs/cgroup/cgroup.controllers").exists())
    {
        let get = |name: &str| file("", path, name);
        let throttled = get("cpu.stat").and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
            line.trim().parse().ok()
        });
        return Some(CgroupLimits {
            version: 2,
            memory_limit: get("memory.max").as_deref().and_then(parse_cgroup_limit),
            memory_used: get("memory.current").as_deref().and_then(parse_cgroup_limit),
            cpu_limit: get("cpu.max").as_deref().and_then(parse_cpu_quota),
            pids_limit: get("pids.max").as_deref().and_then(parse_cgroup_limit),
            throttled_periods: throttled,
        });
    }
    let get = |controller: &str, name: &str| file(&format!("/{controller}"), groups.get(controller)?, name);
    let quota = get("cpu", "cpu.cfs_quota_us").zip(get("cpu", "cpu.cfs_period_us"));
    Some(CgroupLimits {
        version: 1,
        memory_limit: get("memory", "memory.limit_in_bytes").as_deref().and_then(parse_cgroup_limit),
        memory_used: get("memory", "memory.usage_in_bytes").as_deref().and_then(parse_cgroup_limit),
        cpu_limit: quota
            .and_then(|(quota, period)| parse_cpu_quota(&format!("{} {}", quota.trim(), period.trim()))),
        pids_limit: get("pids", "pids.max").as_deref().and_then(parse_cgroup_limit),
        throttled_periods: None,
    })
}

/// The memory limit of the container or of the machine.
pub(super) fn memory_limit() -> Option<u64> {
    let machine = read("/proc/meminfo")
        .and_then(|text| parse_pairs(&text).get("MemTotal").and_then(|value| parse_bytes(value)));
    match (cgroup_limits().and_then(|container| container.memory_limit), machine) {
        (Some(own_limit), Some(machine)) => Some(own_limit.min(machine)),
        (own_limit, machine) => own_limit.or(machine),
    }
}

pub(super) fn container_json() -> Value {
    let Some(limits) = cgroup_limits() else { return unavailable("the system has no control groups") };
    let mut entry = Map::new();
    entry.insert("cgroupVersion".into(), limits.version.into());
    entry.insert("memoryLimitBytes".into(), limits.memory_limit.into());
    entry.insert("memoryUsedBytes".into(), limits.memory_used.into());
    entry.insert("memoryUsedPercent".into(), percent(limits.memory_used, limits.memory_limit).into());
    entry.insert("cpuLimit".into(), limits.cpu_limit.into());
    entry.insert("pidsLimit".into(), limits.pids_limit.into());
    entry.insert("cpuThrottledPeriods".into(), limits.throttled_periods.into());
    let is_container = PathBuf::from("/.dockerenv").exists()
        || PathBuf::from("/run/.containerenv").exists()
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    entry.insert("looksLikeContainer".into(), is_container.into());
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_has_three_averages() {
        let load = parse_loadavg("0.20 0.18 0.12 1/80 11206\n").unwrap();
        assert_eq!((&load["load5"], &load["threads"]), (&json!(0.18), &json!(80)));
        assert_eq!(parse_loadavg("0.2 0.1"), None);
    }

    #[test]
    fn memory_of_the_machine_is_in_bytes() {
        let memory =
            parse_meminfo("MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\nSwapTotal: 0 kB\n");
        assert_eq!(memory["usedBytes"], 750 * 1024);
        assert_eq!(memory["usedPercent"], 75.0);
        assert_eq!(parse_meminfo("")["totalBytes"], Value::Null);
    }

    #[test]
    fn only_real_file_systems_are_listed_once() {
        let text = "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw 0 0\n/dev/sda1 /again ext4 rw 0 0\n\
            tmpfs /run tmpfs rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/sdb1 /mnt/a\\040b xfs rw 0 0\n";
        let result: Vec<String> =
            parse_mounts(text).into_iter().map(|(_, mount_point, _)| mount_point).collect();
        assert_eq!(result, ["/", "/run", "/tmp", "/mnt/a b"]);
    }

    #[test]
    fn interfaces_are_read() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n\
            \x20 lo: 10 1 0 0 0 0 0 0 20 2 0 3 0 0 0 0\neth0:7 1 0 0 0 0 0 0 8 2 0 0 0 0 0 0\n";
        let result = parse_net_dev(text);
        assert_eq!(result[0].0, "lo");
        assert_eq!((&result[0].1["txBytes"], &result[0].1["txDropped"]), (&json!(20), &json!(3)));
        assert_eq!(result[1].1["rxBytes"], 7);
        let ipv6 = parse_if_inet6("00000000000000000000000000000001 01 80 10 80       lo\nnonsense\n");
        assert_eq!(ipv6["lo"], ["::1/128"]);
        let trie = "Local:\n  +-- 127.0.0.0/8 2 0 2\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 127.255.255.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(parse_local_ipv4(trie), ["127.0.0.1"]);
    }

    #[test]
    fn limits_of_containers_are_read() {
        assert_eq!(parse_cgroup_limit("max\n"), None);
        assert_eq!(parse_cgroup_limit("9223372036854771712\n"), None, "unlimited in version 1");
        assert_eq!(parse_cgroup_limit("536870912\n"), Some(536_870_912));
        assert_eq!(parse_cpu_quota("max 100000"), None);
        assert_eq!(parse_cpu_quota("-1 100000"), None);
        assert_eq!(parse_cpu_quota("50000 100000"), Some(0.5));
        let two = parse_cgroups("0::/user.slice\n");
        assert_eq!(two[""], "/user.slice");
        let one = parse_cgroups("4:memory:/docker/x\n2:cpu,cpuacct:/docker/y\n");
        assert_eq!((one["memory"].as_str(), one["cpu"].as_str()), ("/docker/x", "/docker/y"));
    }

    #[test]
    fn percent_of_zero_is_none() {
        assert_eq!(percent(Some(1), Some(0)), None);
        assert_eq!(percent(Some(1), Some(3)), Some(33.3));
    }

    #[test]
    fn os_release_name_is_unquoted() {
        assert_eq!(parse_os_release("ID=x\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_can_be_read() {
        assert!(load()["load1"].is_number());
        assert!(disks(Some("/"))["totalBytes"].as_u64().unwrap() > 0);
        assert_eq!(disks(Some("/no/such/path"))["available"], false);
        assert!(!disks(None)["disks"].as_array().unwrap().is_empty());
        assert!(interfaces()["interfaces"].is_array());
        assert!(memory_limit().unwrap() > 0);
        assert!(container_json().is_object());
    }
}
