//! The edition that a header names.

use toolgate_wire::ProtocolVersion;

use crate::headers::HeaderField;

/// The edition that a header names, if it does.
pub(super) fn parse_version(version: &HeaderField) -> Option<ProtocolVersion> {
    let mut all = ProtocolVersion::ALL.into_iter().rev();
    all.find(|edition| version.equals(edition.as_str()))
        .or_else(|| ProtocolVersion::parse(version.text().ok()??))
}
