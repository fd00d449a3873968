//! Which addresses may be called. What counts is the address that is dialed, never the name: whoever owns a name can
//! let it point anywhere, and change that between two looks.
//!
//! [`Egress::find`] resolves a name and gives only addresses that may be dialed; the dialer takes one of them and asks
//! nobody again. Must not know HTTP.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use ipnet::IpNet;

use super::Problem;

/// How the guard is set.
#[derive(Clone, Debug)]
pub(crate) struct EgressSpec {
    /// Addresses of private networks and of this machine are refused unless listed.
    pub(crate) deny_private: bool,
    /// `host`, `host:port`, an address, an address with a port, or a network.
    pub(crate) allow: Vec<String>,
}

impl Default for EgressSpec {
    fn default() -> EgressSpec {
        EgressSpec { deny_private: true, allow: Vec::new() }
    }
}

/// The guard. Shared by everything that calls out.
pub(crate) struct Egress {
    deny_private: bool,
    names: Vec<(String, Option<u16>)>,
    networks: Vec<(IpNet, Option<u16>)>,
    look_up: Arc<dyn LookUp>,
}

/// What resolving gives, with its type forgotten.
pub(crate) type Found<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Who knows the addresses of names: the system, or a test.
pub(crate) trait LookUp: Send + Sync + 'static {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Found<'a>;
}

/// The resolver of this machine. It also understands the odd ways to write an address (`0x7f.1`), so that
/// those are judged like any other.
struct System;

impl LookUp for System {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Found<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Why nothing is dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Every address of the name is one that must not be called.
    Address,
    /// The name has no address.
    Unknown,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Address => "address not allowed",
            Refused::Unknown => "host not found",
        })
    }
}

impl std::error::Error for Refused {}

/// How dangerous an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Anybody's.
    Public,
    /// This machine, or a network that is not everybody's: may be allowed by name.
    Private,
    /// Metadata of clouds, link-local, broadcast, tunnels: may be allowed by address only.
    Strict,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("deny_private", &self.deny_private)
            .field("names", &self.names)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// A guard, or everything that is wrong with its list.
    pub(crate) fn new(spec: &EgressSpec) -> Result<Egress, Vec<Problem>> {
        Egress::with_look_up(spec, Arc::new(System))
    }

    /// The same with somebody else who knows names.
    pub(crate) fn with_look_up(spec: &EgressSpec, look_up: Arc<dyn LookUp>) -> Result<Egress, Vec<Problem>> {
        let mut guard =
            Egress { deny_private: spec.deny_private, names: Vec::new(), networks: Vec::new(), look_up };
        let mut problems = Vec::new();
        for (number, entry) in spec.allow.iter().enumerate() {
            match entry_of(entry) {
                Some(Entry::Name(name, port)) => guard.names.push((name, port)),
                Some(Entry::Network(network, port)) => guard.networks.push((network, port)),
                None => problems.push(Problem {
                    at: format!("allow.{number}"),
                    said: format!(
                        "`{entry}` is neither a host, `host:port`, an address nor a network such as `10.0.0.0/8`"
                    ),
                }),
            }
        }
        if problems.is_empty() { Ok(guard) } else { Err(problems) }
    }

    /// The addresses of a host that may be dialed. There is at least one.
    pub(crate) async fn find(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Refused> {
        let host = bare(host);
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.look_up.look_up(&host, port).await.map_err(|_| Refused::Unknown)?,
        };
        if found.is_empty() {
            return Err(Refused::Unknown);
        }
        let is_named = self.names_allow(&host, port);
        let allowed: Vec<SocketAddr> =
            found.into_iter().filter(|address| self.allows(*address, is_named)).collect();
        if allowed.is_empty() { Err(Refused::Address) } else { Ok(allowed) }
    }

    /// Whether a host that is written as an address will be refused: worth saying before anything is called.
    pub(crate) fn refuses_literal(&self, host: &str, port: u16) -> bool {
        let host = bare(host);
        host.parse()
            .is_ok_and(|address| !self.allows(SocketAddr::new(address, port), self.names_allow(&host, port)))
    }

    /// Whether somebody listed this host with this port, or a network that it is in.
    pub(crate) fn lists(&self, host: &str, port: u16) -> bool {
        let host = bare(host);
        let listed = |address| self.networks_allow(SocketAddr::new(address, port), true);
        self.names.iter().any(|(name, wanted)| *wanted == Some(port) && fits(name, &host))
            || host.parse().is_ok_and(listed)
    }

    fn names_allow(&self, host: &str, port: u16) -> bool {
        self.names.iter().any(|(name, wanted)| wanted.is_none_or(|wanted| wanted == port) && fits(name, host))
    }

    fn networks_allow(&self, address: SocketAddr, is_port_needed: bool) -> bool {
        let plain = unwrapped(address.ip());
        self.networks.iter().any(|(network, wanted)| {
            let is_port = wanted.map_or(!is_port_needed, |wanted| wanted == address.port());
            is_port && (network.contains(&address.ip()) || network.contains(&plain))
        })
    }

    fn allows(&self, address: SocketAddr, is_named: bool) -> bool {
        match reach(address.ip()) {
            Reach::Public => true,
            Reach::Private => !self.deny_private || is_named || self.networks_allow(address, false),
            Reach::Strict => self.networks_allow(address, false),
        }
    }
}

enum Entry {
    Name(String, Option<u16>),
    Network(IpNet, Option<u16>),
}

fn entry_of(text: &str) -> Option<Entry> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(Entry::Network(network.trunc(), None));
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(Entry::Network(address.into(), None));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(Entry::Network(address.ip().into(), Some(address.port())));
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
    is_name.then(|| Entry::Name(bare(host), port))
}

/// A host as it is compared: without brackets, the dot at its end and capitals.
fn bare(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// `*.example.com` fits every name below it.
fn fits(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => host.len() > end.len() && host.ends_with(end),
        None => pattern == host,
    }
}

/// Addresses where clouds tell a machine its secrets, and that do not look like it.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

fn reach(address: IpAddr) -> Reach {
    if METADATA.contains(&unwrapped(address)) {
        return Reach::Strict;
    }
    match address {
        IpAddr::V4(four) => reach_of_four(four),
        IpAddr::V6(six) => reach_of_six(six),
    }
}

fn reach_of_four(address: Ipv4Addr) -> Reach {
    let [first, second, third, _] = address.octets();
    match (first, second, third) {
        (127 | 10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Reach::Private,
        // "This network", link-local, protocol assignments, documentation, relays, benchmarks, multicast, reserved.
        (0, ..)
        | (169, 254, _)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18 | 19, _)
        | (198, 51, 100)
        | (203, 0, 113)
        | (224.., ..) => Reach::Strict,
        _ => Reach::Public,
    }
}

fn reach_of_six(address: Ipv6Addr) -> Reach {
    if let IpAddr::V4(four) = unwrapped(address.into()) {
        return reach_of_four(four);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Private,
        [0xfc00..=0xfdff, ..] => Reach::Private,
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
        | [0xfe80..=0xffff, ..] => Reach::Strict,
        _ => Reach::Public,
    }
}

/// An IPv4 address that travels as IPv6, mapped or through NAT64, as what it is.
fn unwrapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    match six.segments() {
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

    fn guard(allow: &[&str]) -> Egress {
        let spec =
            EgressSpec { allow: allow.iter().map(|&entry| entry.into()).collect(), deny_private: true };
        Egress::new(&spec).unwrap()
    }

    /// One answer after the other; the last stays.
    struct Turning(Vec<&'static str>, AtomicUsize);

    impl LookUp for Turning {
        fn look_up<'a>(&'a self, _: &'a str, port: u16) -> Found<'a> {
            let turn = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len() - 1);
            let address = SocketAddr::new(self.0[turn].parse().unwrap(), port);
            Box::pin(async move { Ok(vec![address]) })
        }
    }

    #[tokio::test]
    async fn what_is_not_public_is_refused_however_it_is_written() {
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
            assert_eq!(guard.find(host, 80).await, Err(Refused::Address), "{host}");
        }
        for host in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "[64:ff9b::808:808]"] {
            assert!(guard.find(host, 80).await.is_ok(), "{host}");
        }
    }

    #[tokio::test]
    async fn lists_open_what_they_name_and_no_more() {
        let listed = guard(&["localhost:9901", "10.1.0.0/16", "127.0.0.2:80", "[::1]:81", "*.internal:443"]);
        for (host, port, is_allowed) in [
            ("localhost", 9901, true),
            ("localhost.", 9901, true),
            ("localhost", 6379, false),
            // The name is listed, not the address behind it.
            ("127.0.0.1", 9901, false),
            ("10.1.9.9", 1, true),
            ("[::ffff:10.1.9.9]", 1, true),
            ("10.2.0.1", 1, false),
            ("127.0.0.2", 80, true),
            ("127.0.0.2", 81, false),
            ("::1", 81, true),
        ] {
            assert_eq!(listed.find(host, port).await.is_ok(), is_allowed, "{host}:{port}");
        }
        let spec = EgressSpec { deny_private: true, allow: vec!["*.internal:443".into()] };
        for (address, is_allowed) in
            [("10.0.0.1", true), ("169.254.169.254", false), ("fd00:ec2::254", false)]
        {
            let names = Turning(vec![address], AtomicUsize::new(0));
            let guard = Egress::with_look_up(&spec, Arc::new(names)).unwrap();
            assert_eq!(
                guard.find("api.internal", 443).await.is_ok(),
                is_allowed,
                "a name that leads to {address}"
            );
        }
        let open = Egress::new(&EgressSpec { deny_private: false, allow: vec![] }).unwrap();
        assert!(open.find("10.0.0.1", 1).await.is_ok() && open.find("169.254.169.254", 80).await.is_err());
    }

    #[tokio::test]
    async fn a_name_that_turns_around_gives_no_address_that_was_not_checked() {
        let names = Turning(vec!["8.8.8.8", "127.0.0.1"], AtomicUsize::new(0));
        let guard = Egress::with_look_up(&EgressSpec::default(), Arc::new(names)).unwrap();
        assert_eq!(guard.find("rebind.example", 80).await, Ok(vec!["8.8.8.8:80".parse().unwrap()]));
        assert_eq!(guard.find("rebind.example", 80).await, Err(Refused::Address));
    }

    #[test]
    fn every_bad_entry_is_named() {
        let allow = ["ok.example:443", "http://x", "a:b", "10.0.0.0/99", ""].map(String::from).to_vec();
        let problems = Egress::new(&EgressSpec { deny_private: true, allow }).unwrap_err();
        let at: Vec<&str> = problems.iter().map(|problem| problem.at.as_str()).collect();
        assert_eq!(at, ["allow.1", "allow.2", "allow.3", "allow.4"]);
        assert!(guard(&["10.0.0.1:80"]).refuses_literal("10.0.0.1", 81));
        assert!(guard(&["10.0.0.1:80"]).lists("10.0.0.1", 80) && !guard(&["10.0.0.1"]).lists("10.0.0.1", 80));
    }
}
