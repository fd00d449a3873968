//! A response that is being sent.

use std::cell::Cell;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::Body;

use super::response_head;
use crate::transport::listen::READ_BUFFER_BYTES;

/// A body chunk up to this size is copied behind the head; a longer one is written from its own buffer.
const MAX_COPIED_CHUNK_BYTES: usize = 2048;

/// Room for a response head and a short body.
const RESPONSE_CAPACITY_BYTES: usize = 1024;

thread_local! {
    /// The buffer that responses are written to. A response that is sent at once, as nearly all are, gives it back.
    static RESPONSE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// See the module.
pub(super) struct ResponseWriter<B> {
    /// The head, and the part of the body that was copied behind it.
    pub(super) buffer: Vec<u8>,
    /// How much of the buffer is written.
    pub(super) written: usize,
    /// The chunk of the body that follows the buffer.
    pub(super) chunk: Bytes,
    /// The rest of the body, until it has ended.
    pub(super) body: Option<B>,
    pub(super) is_chunked: bool,
    pub(super) is_last: bool,
    /// The peer may still be sending a request body that is not read.
    pub(super) has_unread_body: bool,
}

/// Takes the buffer of this thread, with room for a response.
pub(super) fn take_buffer() -> Vec<u8> {
    let mut buffer = RESPONSE_BUFFER.take();
    buffer.reserve(RESPONSE_CAPACITY_BYTES);
    buffer
}

impl<B: Body<Data = Bytes> + Unpin> ResponseWriter<B> {
    pub(super) fn has_bytes(&self) -> bool {
        self.written < self.buffer.len() || !self.chunk.is_empty()
    }

    /// Takes chunks of the body, as many as fit into one write. Returns true if the next chunk is not available yet.
    pub(super) fn fill(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while self.chunk.is_empty() && self.buffer.len() < READ_BUFFER_BYTES {
            let Some(body) = &mut self.body else { break };
            let data = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(_))) => return Err(io::ErrorKind::Other.into()),
                Poll::Ready(None) => {
                    self.finish_body();
                    break;
                }
                Poll::Pending => return Ok(true),
            };
            let is_end = body.is_end_stream();
            if self.is_chunked && !data.is_empty() {
                response_head::write_chunk_size(&mut self.buffer, data.len());
                self.buffer.extend_from_slice(&data);
                self.buffer.extend_from_slice(b"\r\n");
            } else if data.len() <= MAX_COPIED_CHUNK_BYTES {
                self.buffer.extend_from_slice(&data);
            } else {
                self.chunk = data;
            }
            if is_end {
                self.finish_body();
            }
        }
        Ok(false)
    }

    fn finish_body(&mut self) {
        self.body = None;
        if self.is_chunked {
            self.buffer.extend_from_slice(b"0\r\n\r\n");
        }
    }

    pub(super) fn advance(&mut self, n: usize) {
        let from_buffer = n.min(self.buffer.len() - self.written);
        self.written += from_buffer;
        self.chunk.advance((n - from_buffer).min(self.chunk.len()));
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
        }
    }

    /// Gives the buffer back for the next response on this thread.
    pub(super) fn recycle_buffer(&mut self) {
        let mut buffer = mem::take(&mut self.buffer);
        buffer.clear();
        if (1..=READ_BUFFER_BYTES).contains(&buffer.capacity()) {
            RESPONSE_BUFFER.set(buffer);
        }
    }
}
