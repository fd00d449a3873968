//! Protects against DNS rebinding: only allowed hosts are served, and only web pages of allowed origins.

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri, header};

use super::cors::Cors;
use crate::headers::{HeaderField, ParsedHeaders, host_matches, is_loopback};

/// The hosts and origins that are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostAllowlist {
    /// Host names, lower case, without port.
    hosts: Vec<String>,
    origins: Vec<Origin>,
    /// The public URL of the server, as configured.
    public_url: Option<String>,
}

/// The origin of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) scheme: Scheme,
    /// Lower case.
    pub(super) host: String,
    pub(super) port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// A rejection, with a message for the operator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostRejection {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl HostAllowlist {
    /// Allows requests for this host, on any port.
    ///
    /// # Errors
    /// If it is not a host alone.
    pub(crate) fn allow_host(&mut self, host: &str) -> Result<(), String> {
        let is_host_only = host.parse::<Authority>().is_ok_and(|authority| authority.host() == host);
        if !is_host_only {
            return Err(format!("{host:?} is not a host such as `mcp.example.com`, without scheme and port"));
        }
        let host = host.to_ascii_lowercase();
        if !self.hosts.contains(&host) {
            self.hosts.push(host);
        }
        Ok(())
    }

    /// Allows pages of this origin, for example `https://app.example.com`.
    ///
    /// # Errors
    /// If it is not an origin.
    pub(crate) fn allow_origin(&mut self, origin: &str) -> Result<(), String> {
        let known = Origin::parse(origin)
            .ok_or_else(|| format!("{origin:?} is not an origin such as `https://example.com`"))?;
        if !self.origins.contains(&known) {
            self.origins.push(known);
        }
        Ok(())
    }

    /// Allows the public URL of the server: its host, and pages of its own origin.
    ///
    /// # Errors
    /// If it is not an absolute http or https URL.
    pub(crate) fn allow_url(&mut self, url: &str) -> Result<(), String> {
        let error = || format!("{url:?} is not a URL such as `https://mcp.example.com`");
        let uri: Uri = url.parse().map_err(|_| error())?;
        let host = uri.host().ok_or_else(error)?.to_owned();
        let scheme =
            uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https")).ok_or_else(error)?;
        let authority = uri.authority().ok_or_else(error)?;
        self.allow_origin(&format!("{scheme}://{authority}"))?;
        self.allow_host(&host)?;
        self.public_url = Some(url.to_owned());
        Ok(())
    }

    /// The URL that a request was sent to, as clients know it: the configured one, or else the one of the request,
    /// whose host is allowed.
    pub(crate) fn public_address(&self, scheme: &str, uri: &Uri, headers: &HeaderMap, path: &str) -> String {
        if let Some(public) = &self.public_url {
            let base = public.trim_end_matches('/');
            // The configured URL may be that of the endpoint, or the prefix of all endpoints.
            let is_whole = base.parse::<Uri>().is_ok_and(|uri| uri.path().ends_with(path));
            return if is_whole { base.to_owned() } else { format!("{base}{path}") };
        }
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = named.or_else(|| uri.authority().map(Authority::as_str)).unwrap_or("localhost");
        format!("{scheme}://{host}{path}")
    }

    /// Checks the head of a request, where no other origins are allowed.
    #[cfg(test)]
    pub(crate) fn check_head(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HostRejection> {
        let parsed = ParsedHeaders::parse(headers);
        self.check_host(uri, headers, &parsed)?;
        self.check_origin(&parsed, &Cors::default()).map(|_| ())
    }

    /// Checks the host of a request.
    pub(super) fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        parsed: &ParsedHeaders,
    ) -> Result<(), HostRejection> {
        if uri.authority().is_none() && self.is_allowed_host_header(parsed) {
            return Ok(());
        }
        let named = parse_hosts(uri, headers)?;
        for authority in named.iter().flatten() {
            if !self.is_allowed_host(authority.host()) {
                return Err(HostRejection {
                    status: 403,
                    message: format!(
                        "host {:?} is not served here; allow it with `public_url` or `allow_host` (in a file: `listen.public_url` or `listen.hosts`)",
                        truncate(authority.host())
                    ),
                });
            }
        }
        Ok(())
    }

    /// Checks the origin of a request. Returns it if its pages may read the response.
    pub(super) fn check_origin<'a>(
        &self,
        parsed: &'a ParsedHeaders,
        cors: &Cors,
    ) -> Result<Option<&'a HeaderValue>, HostRejection> {
        let (value, text) = match &parsed.origin {
            HeaderField::Absent => return Ok(None),
            HeaderField::Once(value) => (value, value.to_str().ok()),
            HeaderField::Repeated(first) => (first, None),
        };
        match text {
            Some(text) if cors.is_allowed(text) => Ok(Some(value)),
            Some(text) if self.is_allowed_origin(text) => Ok(None),
            _ => Err(HostRejection {
                status: 403,
                message: format!(
                    "origin {:?} is not allowed here; allow it with `cors` or `allow_origin`",
                    truncate(value.to_str().unwrap_or("?"))
                ),
            }),
        }
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        is_loopback(host) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Whether the header is one allowed host.
    fn is_allowed_host_header(&self, parsed: &ParsedHeaders) -> bool {
        match &parsed.host {
            _ if parsed.is_loopback_host => true,
            HeaderField::Once(host) => self.hosts.iter().any(|known| host_matches(host, known)),
            HeaderField::Absent | HeaderField::Repeated(_) => false,
        }
    }

    fn is_allowed_origin(&self, origin: &str) -> bool {
        // A page of this machine may call this machine, whatever its port.
        Origin::parse(origin)
            .is_some_and(|origin| is_loopback(&origin.host) || self.origins.contains(&origin))
    }
}

/// The hosts that a request names: in its target and in its header. Both must be valid.
fn parse_hosts(uri: &Uri, headers: &HeaderMap) -> Result<[Option<Authority>; 2], HostRejection> {
    let malformed = |message: &str| HostRejection { status: 400, message: message.to_owned() };
    let mut hosts = headers.get_all(header::HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
            Some(
                authority
                    .filter(|host| !host.as_str().contains('@'))
                    .ok_or_else(|| malformed("header host is malformed"))?,
            )
        }
        (None, _) => None,
        _ => return Err(malformed("header host must be sent once")),
    };
    let target = uri.authority().cloned();
    if header.is_none() && target.is_none() {
        return Err(malformed("header host is missing"));
    }
    Ok([target, header])
}

impl Origin {
    /// Parses a scheme, a host and a port, and nothing else.
    pub(super) fn parse(origin: &str) -> Option<Origin> {
        let (scheme, rest) = Scheme::split(origin)?;
        let (host, port) = host_and_port(rest)?;
        Some(Origin { scheme, host, port: port.unwrap_or(scheme.default_port()) })
    }
}

impl Scheme {
    /// Splits a text into its scheme and the rest after `://`.
    pub(super) fn split(text: &str) -> Option<(Scheme, &str)> {
        match text.split_once("://")? {
            ("http", rest) => Some((Scheme::Http, rest)),
            ("https", rest) => Some((Scheme::Https, rest)),
            _ => None,
        }
    }

    /// The default port of the scheme.
    pub(super) fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// Splits an authority into the host, in lower case, and its port.
pub(super) fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    if text.contains('@') || authority.host().is_empty() {
        return None;
    }
    // `Authority::port` returns `None` for a number that is too large.
    let port = match text.strip_prefix(authority.host())? {
        "" => None,
        given => {
            let digits = given.strip_prefix(':')?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            Some(digits.parse().ok().filter(|_| is_number)?)
        }
    };
    Some((authority.host().to_ascii_lowercase(), port))
}

fn truncate(text: &str) -> &str {
    text.char_indices().nth(128).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_status(hosts: &HostAllowlist, host: &str, origin: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        hosts
            .check_head(&Uri::from_static("/mcp"), &headers)
            .map_or_else(|rejection| rejection.status, |()| 200)
    }

    #[test]
    fn loopback_is_served_and_nothing_else() {
        let hosts = HostAllowlist::default();
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:3000", "[::1]:8080", "localhost:65535"] {
            assert_eq!(check_status(&hosts, host, None), 200, "{host}");
        }
        for host in [
            "evil.example.com",
            "127.0.0.1.evil.com",
            "localhost.evil.com",
            "127.0.0.2",
            "0.0.0.0",
            "2130706433",
        ] {
            assert_eq!(check_status(&hosts, host, None), 403, "{host}");
        }
        for host in ["user@localhost", "a b", "[::1", ""] {
            assert_eq!(check_status(&hosts, host, None), 400, "{host:?}");
        }
    }

    #[test]
    fn an_origin_must_be_known() {
        let hosts = HostAllowlist::default();
        for origin in ["http://localhost", "http://127.0.0.1:8080", "https://[::1]:1"] {
            assert_eq!(check_status(&hosts, "localhost", Some(origin)), 200, "{origin}");
        }
        for origin in [
            "null",
            "",
            "file://",
            "https://evil.example",
            "http://localhost.evil.example",
            "http://evil@localhost",
            "http://localhost@evil.example",
            "http://localhost/x",
            "http://localhost:",
            "http://localhost:99999",
            "ftp://localhost",
            "http://localhost, http://localhost",
            "http://%zz",
            "localhost",
            "http://",
        ] {
            assert_eq!(check_status(&hosts, "localhost", Some(origin)), 403, "{origin:?}");
        }
    }

    #[test]
    fn a_public_url_allows_its_host_and_origin() {
        let mut hosts = HostAllowlist::default();
        hosts.allow_url("https://mcp.example.com/mcp").unwrap();
        assert_eq!(check_status(&hosts, "mcp.example.com", Some("https://mcp.example.com")), 200);
        assert_eq!(check_status(&hosts, "mcp.example.com", Some("http://mcp.example.com")), 403);
        assert_eq!(check_status(&hosts, "mcp.example.com", Some("https://mcp.example.com:8443")), 403);
        assert!(hosts.allow_host("mcp.example.com:8080").is_err());
        assert!(hosts.allow_host("https://mcp.example.com").is_err());
        assert!(hosts.allow_host("[2001:db8::1]").is_ok());
        assert!(hosts.allow_url("mcp.example.com").is_err());
        assert!(hosts.allow_origin("example.com").is_err());
    }

    #[test]
    fn the_target_counts_as_much_as_the_header() {
        let headers = HeaderMap::from_iter([(header::HOST, "localhost".parse().unwrap())]);
        let rejection = HostAllowlist::default()
            .check_head(&Uri::from_static("http://evil.example/mcp"), &headers)
            .unwrap_err();
        assert_eq!(rejection.status, 403);
        assert!(rejection.message.contains("`allow_host`") && rejection.message.contains("`listen.hosts`"));
    }
}
