//! The edition that a header names.

use toolgate_wire::Edition;

use crate::letterhead::Field;

/// The edition that a header names, if it does.
pub(super) fn edition(version: &Field) -> Option<Edition> {
    let mut all = Edition::ALL.into_iter().rev();
    all.find(|edition| version.is(edition.date())).or_else(|| Edition::of(version.text().ok()??))
}
