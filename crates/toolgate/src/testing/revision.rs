//! The revision a test speaks: a name for a row of the wire's table.
//!
//! This is all that a test needs to know of editions. Dates stand elsewhere.

use std::fmt;

use toolgate_wire::{ProtocolVersion, ElicitationSupport, StructuredContent};

/// One of the protocol's revisions. Later ones compare greater.
///
/// ```
/// use toolgate::testing::Revision;
///
/// assert_eq!(Revision::all().count(), 5);
/// assert_eq!(Revision::of("2025-06-18").map(|revision| revision.date()), Some("2025-06-18"));
/// assert!(Revision::newest() > Revision::known("2025-11-25"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub(super) ProtocolVersion);

impl Revision {
    /// Every revision, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Revision> + ExactSizeIterator {
        ProtocolVersion::ALL.into_iter().map(Revision)
    }

    /// The newest revision.
    #[must_use]
    pub const fn newest() -> Revision {
        Revision(ProtocolVersion::LATEST)
    }

    /// The revision with this date, if there is one.
    #[must_use]
    pub const fn of(date: &str) -> Option<Revision> {
        let mut index = 0;
        while index < ProtocolVersion::ALL.len() {
            if is_same(ProtocolVersion::ALL[index].as_str(), date) {
                return Some(Revision(ProtocolVersion::ALL[index]));
            }
            index += 1;
        }
        None
    }

    /// The revision with this date.
    ///
    /// ```compile_fail
    /// # use toolgate::testing::Revision;
    /// const NEVER: Revision = Revision::known("1999-12-31");
    /// # assert!(NEVER.shakes_hands());
    /// ```
    ///
    /// # Panics
    /// If there is none. In a `const`, as here, that is an error of the compiler.
    #[must_use]
    pub const fn known(date: &str) -> Revision {
        match Revision::of(date) {
            Some(revision) => revision,
            None => panic!("there is no protocol revision of this date"),
        }
    }

    /// Its date, which is its name.
    #[must_use]
    pub const fn date(self) -> &'static str {
        self.0.as_str()
    }

    /// Whether its clients greet first; those of the newest say who they are in every request.
    #[must_use]
    pub fn shakes_hands(self) -> bool {
        self.0.has_handshake()
    }

    /// Whether it has a form for the user to fill in.
    #[must_use]
    pub fn has_forms(self) -> bool {
        self.0.behavior().elicitation >= ElicitationSupport::Form
    }

    /// Whether it has a link for the user to open.
    #[must_use]
    pub fn has_links(self) -> bool {
        self.0.behavior().elicitation >= ElicitationSupport::FormAndUrl
    }

    /// Whether it has structured output; where not, a tool's JSON is in its text.
    #[must_use]
    pub fn has_structured_output(self) -> bool {
        self.0.behavior().structured_content >= StructuredContent::Object
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.date())
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.date())
    }
}
