//! Base URLs, ports and redirect targets.

use http::uri::{Authority, Scheme};
use http::{Method, StatusCode, Uri};

pub(super) fn parse_base_url(text: &str) -> Result<(Scheme, Authority, String), String> {
    let Ok(uri) = Uri::try_from(text) else {
        return Err(format!("`{text}` is not a URL such as `https://api.example.com`"));
    };
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err(format!("`{text}` is not an absolute URL such as `https://api.example.com`"));
    };
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err(format!("`{scheme}` is not supported, only http and https"));
    }
    if authority.as_str().contains('@') {
        return Err("a URL must not contain user and password; set the header `Authorization`".into());
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(format!("`{text}` must not have a query or fragment; set the query of the tool"));
    }
    Ok((scheme.clone(), authority.clone(), uri.path().trim_end_matches('/').to_owned()))
}

pub(super) fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

pub(super) fn effective_port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(default_port(uri.scheme().unwrap_or(&Scheme::HTTP)))
}

/// Redirects are followed for GET and HEAD only, since other methods may change something.
pub(super) fn is_redirect(status: StatusCode, method: &Method) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
        && (method == Method::GET || method == Method::HEAD)
}

/// Resolves a `Location` header against the request URL.
pub(super) fn resolve_location(from: &Uri, to: &str) -> String {
    let to = to.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or("http");
    let authority = from.authority().map_or("", Authority::as_str);
    if to.contains("://") || to.split(['/', '?']).next().is_some_and(|start| start.contains(':')) {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{to}")
    }
}
