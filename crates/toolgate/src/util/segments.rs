//! An outgoing message in one or two segments.
//!
//! An encoded list is cached and the same for all clients; only the few bytes before it differ. Two segments let it be sent
//! without a copy.

use bytes::{Bytes, BytesMut};

/// The bytes of a message, in two segments.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    pub(crate) head: Bytes,
    /// Empty for most messages.
    pub(crate) tail: Bytes,
}

impl Segments {
    /// Returns the length of both segments.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Joins the segments, copying only if there are two.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.tail.is_empty() {
            return self.head;
        }
        let mut joined = BytesMut::with_capacity(self.len());
        joined.extend_from_slice(&self.head);
        joined.extend_from_slice(&self.tail);
        joined.freeze()
    }
}

impl<T: Into<Bytes>> From<T> for Segments {
    fn from(whole: T) -> Segments {
        Segments { head: whole.into(), tail: Bytes::new() }
    }
}
