//! One message on its way out, in one piece or in two.
//!
//! A list is kept as bytes and is the same for everybody; only the few bytes before it differ. Two pieces let it be
//! sent without being copied.

use bytes::{Bytes, BytesMut};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) head: Bytes,
    /// Mostly empty.
    pub(crate) tail: Bytes,
}

impl Parcel {
    /// In one piece.
    pub(crate) fn whole(self) -> Bytes {
        if self.tail.is_empty() {
            return self.head;
        }
        let mut whole = BytesMut::with_capacity(self.head.len() + self.tail.len());
        whole.extend_from_slice(&self.head);
        whole.extend_from_slice(&self.tail);
        whole.freeze()
    }
}

impl<T: Into<Bytes>> From<T> for Parcel {
    fn from(whole: T) -> Parcel {
        Parcel { head: whole.into(), tail: Bytes::new() }
    }
}
