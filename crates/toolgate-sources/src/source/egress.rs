//! Decides which addresses may be connected to.
//!
//! The decision is based on the resolved address, never on the name: the owner of a name can point it anywhere and
//! change it between two lookups. [`EgressGuard::resolve`] returns only allowed addresses; the connector uses one of
//! them and does not resolve again. This module must not depend on HTTP.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use ipnet::IpNet;

use super::Problem;

/// The configuration of the guard.
#[derive(Clone, Debug)]
pub struct EgressSpec {
    /// Rejects addresses of private networks and of this machine unless they are listed.
    pub deny_private: bool,
    /// `host`, `host:port`, an address, an address with a port, or a network.
    pub allow: Vec<String>,
}

impl Default for EgressSpec {
    fn default() -> EgressSpec {
        EgressSpec { deny_private: true, allow: Vec::new() }
    }
}

/// Checks outgoing connections. Shared by all backends.
pub struct EgressGuard {
    deny_private: bool,
    names: Vec<(String, Option<u16>)>,
    networks: Vec<(IpNet, Option<u16>)>,
    resolver: Arc<dyn Resolver>,
}

/// The boxed future of a lookup.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves host names: the system's resolver, or a test double.
pub trait Resolver: Send + Sync + 'static {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a>;
}

/// The system's resolver. It also accepts unusual spellings of addresses (`0x7f.1`), which are then checked like any
/// other.
struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Why a host cannot be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressError {
    /// All addresses of the host are rejected.
    AddressNotAllowed,
    /// The host has no address.
    HostNotFound,
}

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EgressError::AddressNotAllowed => "address not allowed",
            EgressError::HostNotFound => "host not found",
        })
    }
}

impl std::error::Error for EgressError {}

/// How an address is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressClass {
    /// Always allowed.
    Public,
    /// Loopback and private networks: can be allowed by name.
    Private,
    /// Cloud metadata, link-local, broadcast, tunnels: can be allowed by address only.
    Restricted,
}

impl fmt::Debug for EgressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressGuard")
            .field("deny_private", &self.deny_private)
            .field("names", &self.names)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

impl EgressGuard {
    /// Creates a guard, or returns all problems of its list.
    pub fn new(spec: &EgressSpec) -> Result<EgressGuard, Vec<Problem>> {
        EgressGuard::with_resolver(spec, Arc::new(SystemResolver))
    }

    /// Creates a guard with another resolver.
    pub fn with_resolver(
        spec: &EgressSpec,
        resolver: Arc<dyn Resolver>,
    ) -> Result<EgressGuard, Vec<Problem>> {
        let mut guard = EgressGuard {
            deny_private: spec.deny_private,
            names: Vec::new(),
            networks: Vec::new(),
            resolver,
        };
        let mut problems = Vec::new();
        for (index, entry) in spec.allow.iter().enumerate() {
            match parse_allow_entry(entry) {
                Some(AllowEntry::Name(name, port)) => guard.names.push((name, port)),
                Some(AllowEntry::Network(network, port)) => guard.networks.push((network, port)),
                None => problems.push(Problem {
                    path: format!("allow.{index}"),
                    message: format!(
                        "`{entry}` is neither a host, `host:port`, an address nor a network such as `10.0.0.0/8`"
                    ),
                }),
            }
        }
        if problems.is_empty() { Ok(guard) } else { Err(problems) }
    }

    /// Resolves a host to the addresses that may be connected to. There is at least one.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let host = normalize_host(host);
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.resolver.resolve(&host, port).await.map_err(|_| EgressError::HostNotFound)?,
        };
        if found.is_empty() {
            return Err(EgressError::HostNotFound);
        }
        let is_named = self.is_name_allowed(&host, port);
        let allowed: Vec<SocketAddr> =
            found.into_iter().filter(|address| self.allows(*address, is_named)).collect();
        if allowed.is_empty() { Err(EgressError::AddressNotAllowed) } else { Ok(allowed) }
    }

    /// Whether a host that is an address literal will be rejected, so that it can be reported at configuration time.
    pub fn rejects_literal(&self, host: &str, port: u16) -> bool {
        let host = normalize_host(host);
        host.parse().is_ok_and(|address| {
            !self.allows(SocketAddr::new(address, port), self.is_name_allowed(&host, port))
        })
    }

    /// Whether this host is listed with this port, or a network that contains it.
    pub fn is_listed(&self, host: &str, port: u16) -> bool {
        let host = normalize_host(host);
        let listed = |address| self.is_network_allowed(SocketAddr::new(address, port), true);
        self.names.iter().any(|(name, wanted)| *wanted == Some(port) && host_matches(name, &host))
            || host.parse().is_ok_and(listed)
    }

    fn is_name_allowed(&self, host: &str, port: u16) -> bool {
        self.names
            .iter()
            .any(|(name, wanted)| wanted.is_none_or(|wanted| wanted == port) && host_matches(name, host))
    }

    fn is_network_allowed(&self, address: SocketAddr, is_port_needed: bool) -> bool {
        let canonical = canonical_ip(address.ip());
        self.networks.iter().any(|(network, wanted)| {
            let is_port = wanted.map_or(!is_port_needed, |wanted| wanted == address.port());
            is_port && (network.contains(&address.ip()) || network.contains(&canonical))
        })
    }

    fn allows(&self, address: SocketAddr, is_named: bool) -> bool {
        match classify(address.ip()) {
            AddressClass::Public => true,
            AddressClass::Private => {
                !self.deny_private || is_named || self.is_network_allowed(address, false)
            }
            AddressClass::Restricted => self.is_network_allowed(address, false),
        }
    }
}

enum AllowEntry {
    Name(String, Option<u16>),
    Network(IpNet, Option<u16>),
}

fn parse_allow_entry(text: &str) -> Option<AllowEntry> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(AllowEntry::Network(network.trunc(), None));
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(AllowEntry::Network(address.into(), None));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(AllowEntry::Network(address.ip().into(), Some(address.port())));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, "*")) => (host, None),
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (text, None),
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_name = !name.is_empty()
        && name.split('.').all(|label| !label.is_empty())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_name.then(|| AllowEntry::Name(normalize_host(host), port))
}

/// Normalizes a host for comparison: no brackets, no trailing dot, lower case.
fn normalize_host(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// `*.example.com` matches every name below it.
fn host_matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => host.len() > end.len() && host.ends_with(end),
        None => pattern == host,
    }
}

/// Cloud metadata addresses outside of link-local ranges.
const CLOUD_METADATA_ADDRESSES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

fn classify(address: IpAddr) -> AddressClass {
    if CLOUD_METADATA_ADDRESSES.contains(&canonical_ip(address)) {
        return AddressClass::Restricted;
    }
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let [first, second, third, _] = address.octets();
    match (first, second, third) {
        (127 | 10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => AddressClass::Private,
        // "This network", link-local, protocol assignments, documentation, relays, benchmarks, multicast, reserved.
        (0, ..)
        | (169, 254, _)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18 | 19, _)
        | (198, 51, 100)
        | (203, 0, 113)
        | (224.., ..) => AddressClass::Restricted,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if let IpAddr::V4(v4) = canonical_ip(address.into()) {
        return classify_v4(v4);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Private,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        // Unspecified and IPv4-compatible, local NAT64, discard, Teredo and the like, documentation, 6to4,
        // link-local, site-local, multicast.
        [0, ..]
        | [0x64, 0xff9b, ..]
        | [0x100, 0, 0, 0, ..]
        | [0x2001, 0..=0x1ff, ..]
        | [0x2001, 0xdb8, ..]
        | [0x2002, ..]
        | [0x3fff, ..]
        | [0x5f00, ..]
        | [0xfe80..=0xffff, ..] => AddressClass::Restricted,
        _ => AddressClass::Public,
    }
}

/// Converts IPv4-mapped and NAT64 addresses to IPv4. (`IpAddr::to_canonical` does not cover NAT64.)
fn canonical_ip(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn guard(allow: &[&str]) -> EgressGuard {
        let spec =
            EgressSpec { allow: allow.iter().map(|&entry| entry.into()).collect(), deny_private: true };
        EgressGuard::new(&spec).unwrap()
    }

    /// Returns one address after the other; the last one repeats.
    struct SequenceResolver(Vec<&'static str>, AtomicUsize);

    impl Resolver for SequenceResolver {
        fn resolve<'a>(&'a self, _: &'a str, port: u16) -> ResolveFuture<'a> {
            let index = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len() - 1);
            let address = SocketAddr::new(self.0[index].parse().unwrap(), port);
            Box::pin(async move { Ok(vec![address]) })
        }
    }

    #[tokio::test]
    async fn private_addresses_are_rejected_in_any_spelling() {
        let guard = guard(&[]);
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "017700000001",
            "0",
            "0.0.0.0",
            "localhost",
            "localhost.",
            "LOCALHOST",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "[::1]",
            "::1",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
            "[fd00:ec2::254]",
            "[fc00::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[::127.0.0.1]",
            "[2001:db8::1]",
        ] {
            assert_eq!(guard.resolve(host, 80).await, Err(EgressError::AddressNotAllowed), "{host}");
        }
        for host in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "[64:ff9b::808:808]"] {
            assert!(guard.resolve(host, 80).await.is_ok(), "{host}");
        }
    }

    #[tokio::test]
    async fn the_allow_list_permits_only_its_entries() {
        let listed = guard(&["localhost:9901", "10.1.0.0/16", "127.0.0.2:80", "[::1]:81", "*.internal:443"]);
        for (host, port, is_allowed) in [
            ("localhost", 9901, true),
            ("localhost.", 9901, true),
            ("localhost", 6379, false),
            // The name is listed, but not its address.
            ("127.0.0.1", 9901, false),
            ("10.1.9.9", 1, true),
            ("[::ffff:10.1.9.9]", 1, true),
            ("10.2.0.1", 1, false),
            ("127.0.0.2", 80, true),
            ("127.0.0.2", 81, false),
            ("::1", 81, true),
        ] {
            assert_eq!(listed.resolve(host, port).await.is_ok(), is_allowed, "{host}:{port}");
        }
        let spec = EgressSpec { deny_private: true, allow: vec!["*.internal:443".into()] };
        for (address, is_allowed) in
            [("10.0.0.1", true), ("169.254.169.254", false), ("fd00:ec2::254", false)]
        {
            let names = SequenceResolver(vec![address], AtomicUsize::new(0));
            let guard = EgressGuard::with_resolver(&spec, Arc::new(names)).unwrap();
            assert_eq!(
                guard.resolve("api.internal", 443).await.is_ok(),
                is_allowed,
                "a name that leads to {address}"
            );
        }
        let open = EgressGuard::new(&EgressSpec { deny_private: false, allow: vec![] }).unwrap();
        assert!(
            open.resolve("10.0.0.1", 1).await.is_ok() && open.resolve("169.254.169.254", 80).await.is_err()
        );
    }

    #[tokio::test]
    async fn dns_rebinding_never_yields_an_unchecked_address() {
        let names = SequenceResolver(vec!["8.8.8.8", "127.0.0.1"], AtomicUsize::new(0));
        let guard = EgressGuard::with_resolver(&EgressSpec::default(), Arc::new(names)).unwrap();
        assert_eq!(guard.resolve("rebind.example", 80).await, Ok(vec!["8.8.8.8:80".parse().unwrap()]));
        assert_eq!(guard.resolve("rebind.example", 80).await, Err(EgressError::AddressNotAllowed));
    }

    #[test]
    fn every_invalid_entry_is_reported() {
        let allow = ["ok.example:443", "http://x", "a:b", "10.0.0.0/99", ""].map(String::from).to_vec();
        let problems = EgressGuard::new(&EgressSpec { deny_private: true, allow }).unwrap_err();
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["allow.1", "allow.2", "allow.3", "allow.4"]);
        assert!(guard(&["10.0.0.1:80"]).rejects_literal("10.0.0.1", 81));
        assert!(
            guard(&["10.0.0.1:80"]).is_listed("10.0.0.1", 80)
                && !guard(&["10.0.0.1"]).is_listed("10.0.0.1", 80)
        );
    }
}
