//! The revision a test speaks: a name for a row of the wire's table.
//!
//! This is all that a test needs to know of editions. Dates stand elsewhere.

use std::fmt;

use toolgate_wire::{ElicitationSupport, ProtocolVersion, StructuredContent};

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
pub struct TestVersion(pub(super) ProtocolVersion);

impl TestVersion {
    /// Every revision, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = TestVersion> + ExactSizeIterator {
        ProtocolVersion::ALL.into_iter().map(TestVersion)
    }

    /// The newest revision.
    #[must_use]
    pub const fn newest() -> TestVersion {
        TestVersion(ProtocolVersion::LATEST)
    }

    /// The revision with this date, if there is one.
    #[must_use]
    pub const fn from_date(date: &str) -> Option<TestVersion> {
        let mut index = 0;
        while index < ProtocolVersion::ALL.len() {
            if str_eq(ProtocolVersion::ALL[index].as_str(), date) {
                return Some(TestVersion(ProtocolVersion::ALL[index]));
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
    pub const fn known(date: &str) -> TestVersion {
        match TestVersion::from_date(date) {
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
    pub fn has_handshake(self) -> bool {
        self.0.has_handshake()
    }

    /// Whether it has a form for the user to fill in.
    #[must_use]
    pub fn has_form_elicitation(self) -> bool {
        self.0.behavior().elicitation >= ElicitationSupport::Form
    }

    /// Whether it has a link for the user to open.
    #[must_use]
    pub fn has_url_elicitation(self) -> bool {
        self.0.behavior().elicitation >= ElicitationSupport::FormAndUrl
    }

    /// Whether it has structured output; where not, a tool's JSON is in its text.
    #[must_use]
    pub fn has_structured_output(self) -> bool {
        self.0.behavior().structured_content >= StructuredContent::Object
    }
}

const fn str_eq(one: &str, other: &str) -> bool {
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

impl fmt::Display for TestVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.date())
    }
}

impl fmt::Debug for TestVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.date())
    }
}
