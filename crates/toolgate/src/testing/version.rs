//! The protocol version of a test client.
//!
//! A wrapper around [`ProtocolVersion`] with the properties a test needs; the dates are defined in `toolgate_wire`.

use std::fmt;

use toolgate_wire::{ElicitationSupport, ProtocolVersion, StructuredContent, TasksMode};

/// A protocol version. Later versions compare greater.
///
/// ```
/// use toolgate::testing::TestVersion;
///
/// assert_eq!(TestVersion::all().count(), 5);
/// assert_eq!(TestVersion::from_date("2025-06-18").map(|version| version.date()), Some("2025-06-18"));
/// assert!(TestVersion::newest() > TestVersion::known("2025-11-25"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TestVersion(pub(super) ProtocolVersion);

impl TestVersion {
    /// Returns all protocol versions, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = TestVersion> + ExactSizeIterator {
        ProtocolVersion::ALL.into_iter().map(TestVersion)
    }

    /// Returns the newest protocol version.
    #[must_use]
    pub const fn newest() -> TestVersion {
        TestVersion(ProtocolVersion::LATEST)
    }

    /// Returns the version with this date, or `None` if it is not supported.
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

    /// Returns the version with this date.
    ///
    /// ```compile_fail
    /// # use toolgate::testing::TestVersion;
    /// const NEVER: TestVersion = TestVersion::known("1999-12-31");
    /// # assert!(NEVER.has_handshake());
    /// ```
    ///
    /// # Panics
    /// If the version is not supported. In a `const`, as here, that is a compile error.
    #[must_use]
    pub const fn known(date: &str) -> TestVersion {
        match TestVersion::from_date(date) {
            Some(version) => version,
            None => panic!("no supported protocol version has this date"),
        }
    }

    /// Returns the date that names this version.
    #[must_use]
    pub const fn date(self) -> &'static str {
        self.0.as_str()
    }

    /// Returns true if clients of this version send `initialize` first; clients of the newest version send their
    /// client info with every request instead.
    #[must_use]
    pub fn has_handshake(self) -> bool {
        self.0.has_handshake()
    }

    /// Returns true if this version has elicitation with a form.
    #[must_use]
    pub fn has_form_elicitation(self) -> bool {
        self.0.behavior().elicitation >= ElicitationSupport::Form
    }

    /// Returns true if this version has elicitation with a URL.
    #[must_use]
    pub fn has_url_elicitation(self) -> bool {
        self.0.behavior().elicitation >= ElicitationSupport::FormAndUrl
    }

    /// Returns true if this version has structured output; in older versions a tool's JSON is in its text.
    #[must_use]
    pub fn has_structured_output(self) -> bool {
        self.0.behavior().structured_content >= StructuredContent::Object
    }

    /// Returns true if this version has tasks: see [`TestCall::task`](super::TestCall::task).
    #[must_use]
    pub fn has_tasks(self) -> bool {
        self.0.behavior().tasks != TasksMode::Never
    }
}

/// `==` for strings is not available in a `const fn`.
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
