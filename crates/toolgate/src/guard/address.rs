//! The address a request comes from, and lists of allowed addresses.
//!
//! An address in a header counts only if a trusted proxy has sent it, and only in the one header that the proxy is
//! configured to write: a proxy passes other headers on as the client sent them.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

use super::into_strings::IntoStrings;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The proxies whose headers are trusted, and the header in which they send the client's address.
#[derive(Clone, Debug)]
pub(crate) struct TrustedProxies {
    pub(crate) addresses: AddressList,
    /// `X-Forwarded-For`, a list, or a header with one address.
    header: HeaderName,
}

impl Default for TrustedProxies {
    fn default() -> TrustedProxies {
        TrustedProxies { addresses: AddressList::default(), header: FORWARDED_FOR }
    }
}

impl TrustedProxies {
    /// Sets the header with the client's address.
    ///
    /// # Errors
    /// If it is not the name of a header, or is `Forwarded`, whose format is not supported.
    pub(crate) fn set_header(&mut self, name: &str) -> Result<(), String> {
        let header =
            name.parse::<HeaderName>().map_err(|_| format!("{name:?} is not the name of a header"))?;
        if header == http::header::FORWARDED {
            return Err("`Forwarded` is not supported; let the proxy send `X-Forwarded-For`".into());
        }
        self.header = header;
        Ok(())
    }

    /// The address a request comes from. `None` if it is not known.
    pub(super) fn client_address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        if self.addresses.is_empty() || !self.addresses.contains(peer) {
            return Some(peer);
        }
        if self.header != FORWARDED_FOR {
            let mut values = headers.get_all(&self.header).iter();
            return match (values.next(), values.next()) {
                (None, _) => Some(peer),
                (Some(value), None) => parse_address(value.to_str().ok()?.trim()),
                (Some(_), Some(_)) => None,
            };
        }
        match parse_forwarded_for(headers, &self.addresses) {
            ForwardedFor::From(address) => Some(address),
            ForwardedFor::Malformed => None,
            ForwardedFor::Absent => Some(peer),
        }
    }

    /// Whether a trusted proxy states that the client connected over TLS.
    pub(super) fn is_forwarded_https(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> bool {
        if self.addresses.is_empty() || !peer.is_some_and(|peer| self.addresses.contains(peer)) {
            return false;
        }
        let mut values = headers.get_all(FORWARDED_PROTO).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.as_bytes().eq_ignore_ascii_case(b"https"),
            _ => false,
        }
    }
}

/// A list of addresses and networks.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressList {
    /// The entries as given, and their networks.
    networks: Vec<(String, Network)>,
}

impl AddressList {
    /// Replaces the list.
    ///
    /// # Errors
    /// If an entry is neither an address nor a network; then nothing changes.
    pub(crate) fn set(&mut self, addresses: impl IntoStrings) -> Result<(), String> {
        let mut fresh = AddressList::default();
        for address in addresses.into_strings() {
            fresh.add(&address)?;
        }
        *self = fresh;
        Ok(())
    }

    /// Adds an entry, unless it is already listed.
    ///
    /// # Errors
    /// If it is neither an address nor a network.
    pub(crate) fn add(&mut self, address: &str) -> Result<(), String> {
        let network = parse_network(address).ok_or_else(|| {
            format!(
                "{address:?} is neither an address nor a network such as `192.168.0.0/24` or `2001:db8::/32`"
            )
        })?;
        if !self.networks.iter().any(|(_, known)| *known == network) {
            self.networks.push((address.to_owned(), network));
        }
        Ok(())
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.networks.clear();
    }

    /// The entries, as given.
    pub(crate) fn list(&self) -> Vec<String> {
        self.networks.iter().map(|(given, _)| given.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether this address is in the list.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|(_, network)| network.contains(address))
    }

    /// Whether a list of allowed addresses allows this one: an empty list allows all.
    pub(crate) fn allows(&self, address: &str) -> bool {
        self.is_empty() || parse_address(address).is_some_and(|address| self.contains(address))
    }
}

enum ForwardedFor {
    From(IpAddr),
    /// A trusted proxy has sent something that is not an address: the client must not be mistaken for the proxy.
    Malformed,
    Absent,
}

/// The last address of the list that is not a trusted proxy. The client may have forged everything before it.
fn parse_forwarded_for(headers: &HeaderMap, proxies: &AddressList) -> ForwardedFor {
    let mut found = ForwardedFor::Absent;
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    for line in lines {
        let Ok(line) = line.to_str() else {
            return ForwardedFor::Malformed;
        };
        for hop in line.rsplit(',').map(str::trim).filter(|hop| !hop.is_empty()) {
            match parse_address(hop) {
                None => return ForwardedFor::Malformed,
                Some(address) if !proxies.contains(address) => return ForwardedFor::From(address),
                Some(address) => found = ForwardedFor::From(address),
            }
        }
    }
    found
}

/// Parses an address, alone or with a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn parse_address(text: &str) -> Option<IpAddr> {
    let address = text
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().map(IpAddr::V6).ok())?;
    Some(address.to_canonical())
}

/// An IP network: the first address, and the number of leading bits that all its addresses share.
///
/// Both are of the IPv6 address, which is IPv4-mapped for an IPv4 network. So an IPv4-mapped network and the IPv4 network
/// are the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    first: u128,
    prefix_bits: u32,
}

impl Network {
    fn new(address: IpAddr, prefix_bits: u32) -> Network {
        let first = mapped_bits(address) & network_mask(prefix_bits);
        Network { first, prefix_bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        mapped_bits(address) & network_mask(self.prefix_bits) == self.first && self.is_of_family(address)
    }

    /// An IPv6 network that contains all IPv4-mapped addresses, such as `::/0`, contains no IPv4 addresses.
    fn is_of_family(self, address: IpAddr) -> bool {
        self.prefix_bits >= MAPPED_PREFIX_BITS || address.is_ipv6()
    }
}

/// The length of the prefix `::ffff:0:0`, below which IPv4 addresses are mapped into IPv6.
const MAPPED_PREFIX_BITS: u32 = 96;

fn mapped_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().to_bits(),
        IpAddr::V6(six) => six.to_bits(),
    }
}

fn network_mask(prefix_bits: u32) -> u128 {
    u128::MAX.checked_shl(u128::BITS - prefix_bits).unwrap_or(0)
}

/// Parses an address or a network (`10.0.0.0/8`). Bits of the address behind the prefix are ignored.
fn parse_network(text: &str) -> Option<Network> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().ok()?;
    let unmapped_bits = if address.is_ipv4() { MAPPED_PREFIX_BITS } else { 0 };
    let length = match length {
        Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse::<u32>().ok()?,
        Some(_) => return None,
        None => u128::BITS - unmapped_bits,
    };
    let prefix_bits = unmapped_bits.checked_add(length).filter(|bits| *bits <= u128::BITS)?;
    Some(Network::new(address, prefix_bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(list: &[&str]) -> AddressList {
        let mut addresses = AddressList::default();
        addresses.set(list).unwrap();
        addresses
    }

    #[test]
    fn a_list_holds_addresses_and_networks_of_both_kinds() {
        let list =
            addresses(&["192.168.0.0/24", "::1", "2001:db8::/32", "10.1.2.3", "::ffff:172.16.0.0/108"]);
        for good in [
            "192.168.0.77",
            "::1",
            "2001:db8:ffff::1",
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "172.16.5.5",
            "::ffff:172.31.0.1",
        ] {
            assert!(list.allows(good), "{good}");
        }
        for bad in ["192.168.1.77", "::2", "2001:db9::1", "10.1.2.4", "172.32.0.1", "", "x", "192.168.0.077"]
        {
            assert!(!list.allows(bad), "{bad}");
        }
        assert!(AddressList::default().allows("203.0.113.9"), "an empty list lets in everybody");
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.1-10.0.0.9", "localhost"] {
            assert!(AddressList::default().add(wrong).is_err(), "{wrong:?}");
        }
        let mut list = addresses(&["10.0.0.7/8", "10.0.0.0/8"]);
        assert_eq!(list.list(), ["10.0.0.7/8"], "both are the same network");
        list.clear();
        assert!(list.is_empty());
    }

    fn check(peer: &str, proxies: &[&str], pairs: &[(&'static str, &str)], wanted: Option<&str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let found = trusted(proxies).client_address(peer.parse().ok(), &headers);
        assert_eq!(found, wanted.map(|wanted| wanted.parse().unwrap()), "{peer} {pairs:?}");
    }

    fn trusted(proxies: &[&str]) -> TrustedProxies {
        TrustedProxies { addresses: addresses(proxies), ..TrustedProxies::default() }
    }

    #[test]
    fn forwarding_headers_count_only_from_trusted_proxies() {
        let xff = "x-forwarded-for";
        let ours = ["127.0.0.1", "10.0.0.0/8"];
        check("203.0.113.9", &[], &[(xff, "192.0.2.1")], Some("203.0.113.9"));
        check("203.0.113.9", &ours, &[(xff, "192.0.2.1"), ("x-real-ip", "192.0.2.1")], Some("203.0.113.9"));
        check("unknown", &ours, &[(xff, "192.0.2.1")], None);
        check("127.0.0.1", &ours, &[], Some("127.0.0.1"));
        check("::ffff:127.0.0.1", &ours, &[(xff, "192.0.2.1")], Some("192.0.2.1"));
        // L02: the client's forged addresses come first.
        check("127.0.0.1", &ours, &[(xff, "1.1.1.1, 192.0.2.1, 10.9.9.9, 127.0.0.1")], Some("192.0.2.1"));
        check("127.0.0.1", &ours, &[(xff, "1.1.1.1"), (xff, "192.0.2.1, 10.0.0.1")], Some("192.0.2.1"));
        check("127.0.0.1", &ours, &[(xff, "evil, 192.0.2.1:5678")], Some("192.0.2.1"));
        check("127.0.0.1", &ours, &[(xff, "[2001:db8::1]:443")], Some("2001:db8::1"));
        check("127.0.0.1", &ours, &[(xff, "::ffff:192.0.2.1")], Some("192.0.2.1"));
        check("127.0.0.1", &ours, &[(xff, "10.0.0.2, 10.0.0.1")], Some("10.0.0.2"));
        check("127.0.0.1", &ours, &[(xff, "192.0.2.1, unknown")], None);
        check("127.0.0.1", &ours, &[(xff, "192.0.2.1, unknown, 10.0.0.1")], None);
        check("127.0.0.1", &ours, &[(xff, " , ,")], Some("127.0.0.1"));
        // F7: headers that the proxy does not write come from the client.
        let forged = ["cf-connecting-ip", "true-client-ip", "x-real-ip"].map(|name| (name, "1.1.1.1"));
        check("127.0.0.1", &ours, &forged, Some("127.0.0.1"));
        check("127.0.0.1", &ours, &[forged[0], (xff, "192.0.2.1")], Some("192.0.2.1"));
    }

    #[test]
    fn one_configured_header_states_the_address() {
        let mut proxies = trusted(&["127.0.0.1"]);
        for wrong in ["", "x real", "Forwarded"] {
            assert!(proxies.set_header(wrong).is_err(), "{wrong:?}");
        }
        proxies.set_header("X-Real-IP").unwrap();
        for (values, wanted) in [
            (&[("x-real-ip", "192.0.2.1")][..], Some("192.0.2.1")),
            (&[("x-real-ip", "192.0.2.1"), ("cf-connecting-ip", "1.1.1.1")], Some("192.0.2.1")),
            (&[("x-real-ip", "192.0.2.1"), ("x-forwarded-for", "1.1.1.1")], Some("192.0.2.1")),
            (&[("x-forwarded-for", "1.1.1.1")], Some("127.0.0.1")),
            (&[("x-real-ip", "192.0.2.1"), ("x-real-ip", "192.0.2.2")], None),
            (&[("x-real-ip", "nobody")], None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(*name, value.parse().unwrap());
            }
            let found = proxies.client_address("127.0.0.1".parse().ok(), &headers);
            assert_eq!(found, wanted.map(|wanted| wanted.parse().unwrap()), "{values:?}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_can_state_tls() {
        let headers = HeaderMap::from_iter([(FORWARDED_PROTO, "HTTPS".parse().unwrap())]);
        let peer = "127.0.0.1".parse().ok();
        assert!(trusted(&["127.0.0.1"]).is_forwarded_https(peer, &headers));
        assert!(!trusted(&["127.0.0.2"]).is_forwarded_https(peer, &headers));
        assert!(!trusted(&["127.0.0.1"]).is_forwarded_https(None, &headers));
        assert!(!TrustedProxies::default().is_forwarded_https(peer, &headers));
        assert!(!trusted(&["127.0.0.1"]).is_forwarded_https(peer, &HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn any_header_is_parsed(
            list in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..3),
            single in "[0-9a-f:.,\\[\\] ]{0,40}",
        ) {
            let proxies = trusted(&["127.0.0.1", "10.0.0.0/8"]);
            let mut headers = HeaderMap::new();
            for value in list.iter().filter_map(|value| http::HeaderValue::from_bytes(value).ok()) {
                headers.append(FORWARDED_FOR, value);
            }
            if let Ok(value) = single.parse() {
                headers.append(FORWARDED_FOR, value);
            }
            proxies.client_address("127.0.0.1".parse().ok(), &headers);
        }

        /// Whatever a client sends, the last address that a trusted proxy added counts.
        #[test]
        fn forged_addresses_change_nothing(forged in "[0-9a-z:., ]{0,40}", hops in 0_usize..3) {
            let list = format!("{forged}, 192.0.2.1{}", ", 10.0.0.1".repeat(hops));
            check("127.0.0.1", &["127.0.0.1", "10.0.0.0/8"], &[("x-forwarded-for", &list)], Some("192.0.2.1"));
        }

        /// The crate `ipnet` is the reference, with IPv4-mapped networks as IPv4 networks.
        #[test]
        fn networks_contain_the_same_addresses_as_those_of_ipnet(
            first in any::<IpAddr>(),
            length in 0_u8..=129,
            flipped_bit in 0_u32..128,
            other in any::<IpAddr>(),
        ) {
            let text = format!("{first}/{length}");
            let expected = text.parse::<ipnet::IpNet>().ok();
            let network = parse_network(&text);
            prop_assert_eq!(network.is_some(), expected.is_some());
            let (Some(network), Some(expected)) = (network, expected) else { return Ok(()) };
            let expected = match first.to_canonical() {
                four @ IpAddr::V4(_) if first.is_ipv6() && length >= 96 => {
                    ipnet::IpNet::new(four, length - 96).unwrap()
                }
                _ => expected,
            };
            let near = match first {
                IpAddr::V4(four) => IpAddr::from((four.to_bits() ^ (1 << (flipped_bit % 32))).to_be_bytes()),
                IpAddr::V6(six) => IpAddr::from((six.to_bits() ^ (1 << flipped_bit)).to_be_bytes()),
            };
            for address in [first, near, other].map(|address| address.to_canonical()) {
                prop_assert_eq!(network.contains(address), expected.contains(&address), "{} {}", text, address);
            }
        }

        #[test]
        fn any_text_is_parsed_as_an_address(text in "\\PC{0,30}", digits in "[0-9a-f:./\\[\\]]{0,30}") {
            for text in [text, digits] {
                parse_address(&text);
                parse_network(&text);
            }
        }
    }
}
