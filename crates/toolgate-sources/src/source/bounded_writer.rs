//! An `io::Write` into memory with a maximum size.

use std::io::{self, Write};

/// Collects bytes up to a limit. A write beyond it fills the buffer and fails with [`io::ErrorKind::StorageFull`].
pub(crate) struct BoundedWriter {
    bytes: Vec<u8>,
    limit: usize,
}

impl BoundedWriter {
    pub(crate) fn new(limit: usize) -> BoundedWriter {
        BoundedWriter { bytes: Vec::new(), limit }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }

    /// Returns the bytes written so far, and leaves the buffer empty.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit - self.bytes.len();
        if bytes.len() > room {
            self.bytes.extend_from_slice(&bytes[..room]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
