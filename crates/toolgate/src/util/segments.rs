//! One message on its way out, in one piece or in two.
//!
//! A list is kept as bytes and is the same for everybody; only the few bytes before it differ. Two pieces let it be
//! sent without being copied.

use bytes::{Bytes, BytesMut};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    pub(crate) head: Bytes,
    /// Mostly empty.
    pub(crate) tail: Bytes,
}

impl Segments {
    /// In one piece.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.tail.is_empty() {
            return self.head;
        }
        let mut whole = BytesMut::with_capacity(self.head.len() + self.tail.len());
        whole.extend_from_slice(&self.head);
        whole.extend_from_slice(&self.tail);
        whole.freeze()
    }
}

impl<T: Into<Bytes>> From<T> for Segments {
    fn from(whole: T) -> Segments {
        Segments { head: whole.into(), tail: Bytes::new() }
    }
}
