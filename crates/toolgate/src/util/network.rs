//! Networks that count as one client.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the network of an address: the address itself for IPv4, and the /64 network for IPv6, which commonly is one
/// customer.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}
