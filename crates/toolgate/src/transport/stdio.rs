//! The stdio transport: one message per line, over any pair of byte streams.
//!
//! Reading stops while the client does not read, so nothing accumulates. A line that is not a message is answered
//! like any other, and the next one is read.
//!
//! On Linux, the process's own pipes are opened a second time and polled by the runtime. If the program has read from
//! `std::io::stdin()` before, bytes in its buffer are not seen here. The runtime must have its I/O driver enabled
//! (`enable_io` or `enable_all`); without it, pipes cannot be served.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolgate_wire::Dialect;

use crate::engine::{CallState, Engine};
use crate::headers::RequestHeaders;
use crate::observe::Transport;
use crate::protocol::{Channel, DuplexConnection, Peer, Reply, ReplyKind};
use crate::request::Principal;
use crate::stream::{Capacity, ReadResult, Reader, Stream};
use crate::util::spawn::{Tracker, spawn_on};

/// Calls of one connection that may be in flight. A further one is rejected: waiting for a permit would keep out the
/// very messages that release one, responses and cancellations.
const MAX_CONCURRENT_CALLS: usize = 1024;

/// Serves one connection until its input ends or `shutdown` is cancelled; calls in flight get `timeout` to finish.
pub(crate) async fn serve<R, W>(
    engine: Arc<Engine>,
    input: R,
    output: W,
    shutdown: CancellationToken,
    timeout: Duration,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let out = Stream::new(Capacity { messages: 1024, bytes: 4 << 20 });
    let closed = CancellationToken::new();
    let connection = DuplexConnection::new(Arc::clone(&out), Some(closed.clone()));
    let tasks = Tracker::new();
    let call_permits = Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS));
    let mut writer =
        spawn_on(&Handle::current(), write_messages(out.reader(), output, Arc::clone(&call_permits)));
    tasks.spawn({
        let (engine, connection) = (Arc::clone(&engine), Arc::clone(&connection));
        async move { engine.protocol.send_connection_changes(&connection).await }
    });
    engine.protocol.start_cluster();
    let dialect = engine.dialect.load();
    let headers = Arc::default();
    let mut stdio = StdioConnection { engine, connection, out, tasks, call_permits, dialect, headers };
    let or_broken_pipe =
        |write_result: Option<io::Result<()>>| write_result.unwrap_or(Err(io::ErrorKind::BrokenPipe.into()));
    let read_result = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        // The client requested the end of the connection. Calls in flight are finished.
        () = closed.cancelled() => Ok(()),
        // No reply can be sent any more, so nothing more is run.
        write_result = &mut writer => return or_broken_pipe(write_result),
        read_result = stdio.read_messages(input) => read_result,
    };
    stdio.finish(timeout).await;
    // A client that does not read the rest must not keep the process running.
    let write_result = match tokio::time::timeout(timeout, &mut writer).await {
        Ok(write_result) => or_broken_pipe(write_result),
        Err(_) => {
            writer.abort();
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    read_result.and(write_result)
}

struct StdioConnection {
    engine: Arc<Engine>,
    connection: Arc<DuplexConnection>,
    out: Arc<Stream>,
    tasks: Tracker,
    call_permits: Arc<Semaphore>,
    dialect: Option<Arc<Dialect>>,
    /// Empty: there are no headers.
    headers: Arc<RequestHeaders>,
}

impl StdioConnection {
    async fn read_messages(&mut self, input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = LineReader::new(input, self.engine.limits.max_bytes);
        while let Some(line) = lines.next_line().await? {
            self.out.wait_for_room().await;
            self.handle_message(&line);
        }
        Ok(())
    }

    /// Handles one message. Messages that need no handler are answered at once. A handler runs in a task of its own: one
    /// that blocks its thread must not keep the next message from being read.
    fn handle_message(&self, bytes: &Bytes) {
        let permit = Arc::clone(&self.call_permits).try_acquire_owned().ok();
        if permit.is_none()
            && let Some(rejection) = self.engine.reject_overload(bytes)
        {
            self.out.push(rejection);
            return;
        }
        let peer = Peer {
            principal: Principal::anonymous(),
            headers: Arc::clone(&self.headers),
            extensions: None,
            remote_addr: None,
            via: Channel::Duplex(Arc::clone(&self.connection)),
            dialect: self.dialect.clone(),
            transport: Transport::Stdio,
        };
        let (engine, out) = (Arc::clone(&self.engine), Arc::clone(&self.out));
        match self.engine.begin(bytes, &peer, &self.out) {
            CallState::Finished(reply) => send_reply(&out, reply),
            call => {
                // Boxed, because a task is moved several times before it runs.
                let mut call = Box::new(call);
                self.tasks.spawn(async move {
                    send_reply(&out, engine.complete(&mut call).await);
                    drop(permit);
                });
            }
        }
    }

    /// Lets calls in flight finish, then closes.
    async fn finish(self, timeout: Duration) {
        self.connection.close_input();
        self.tasks.close();
        // Calls that take longer are cancelled, because their client has disconnected.
        let _ = tokio::time::timeout(timeout, self.tasks.wait()).await;
    }
}

/// Ends the connection when serving ends or is cancelled, so that no call is left running.
impl Drop for StdioConnection {
    fn drop(&mut self) {
        self.connection.end();
        self.out.finish();
    }
}

fn send_reply(out: &Stream, reply: Reply) {
    if let Reply::Body { body, kind, .. } = reply {
        out.push(body.into_bytes());
        if let ReplyKind::Initialized(notification) = kind {
            out.push(notification);
        }
    }
}

/// Writes all available messages with as few writes as possible.
async fn write_messages(
    mut reader: Reader,
    mut output: impl AsyncWrite + Unpin,
    call_permits: Arc<Semaphore>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let message = match reader.next().await {
            ReadResult::Message(message) => message,
            // A connection cannot be resumed.
            ReadResult::Disconnect(_) => continue,
            ReadResult::End => break,
        };
        // Other calls are in flight and may be ready: let them run first, then write everything at once.
        if call_permits.available_permits() < MAX_CONCURRENT_CALLS {
            tokio::task::yield_now().await;
        }
        buffer.clear();
        let mut message = Some(message);
        while let Some(next) = message {
            buffer.extend_from_slice(&next.data);
            buffer.push(b'\n');
            message = if buffer.len() < 64 << 10 { reader.try_next() } else { None };
        }
        output.write_all(&buffer).await?;
        output.flush().await?;
        if buffer.capacity() > 1 << 20 {
            buffer = Vec::new();
        }
    }
    output.shutdown().await
}

/// How much is read at once.
const READ_BLOCK_BYTES: usize = 16 << 10;

/// The position of the first line break. Most blocks contain none, so 32 bytes are checked at a time.
fn find_line_break(bytes: &[u8]) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<32>();
    let is_break = |byte: &u8| *byte == b'\n';
    let has_none = |block: &&[u8; 32]| !block.iter().fold(false, |found, byte| found | is_break(byte));
    let start = 32 * blocks.iter().take_while(has_none).count();
    bytes[start..].iter().position(is_break).map(|offset| start + offset)
}

/// Splits input into lines of limited length.
struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer contains no line break.
    searched: usize,
    max_line_bytes: usize,
    /// The line is too long, and its rest is discarded.
    is_skipping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn new(input: R, max_line_bytes: usize) -> LineReader<R> {
        LineReader {
            input,
            buffer: BytesMut::with_capacity(READ_BLOCK_BYTES),
            searched: 0,
            max_line_bytes,
            is_skipping: false,
        }
    }

    /// Returns the next line that is not blank. A line that is too long is cut to one byte over the limit, so that it
    /// is rejected as too long.
    async fn next_line(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            while let Some(line) = self.take_line() {
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line));
                }
            }
            if self.is_skipping {
                self.buffer.clear();
                self.searched = 0;
            } else if self.buffer.len() > self.max_line_bytes {
                self.is_skipping = true;
                let mut line = self.buffer.split();
                line.truncate(self.max_line_bytes + 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            // Reading into the last few bytes of a block would cost an extra read.
            if self.buffer.capacity() - self.buffer.len() < READ_BLOCK_BYTES / 4 {
                self.buffer.reserve(READ_BLOCK_BYTES);
            }
            // Bytes without a line break at the end of input are an incomplete message, which is never run.
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take_line(&mut self) -> Option<Bytes> {
        let found = find_line_break(&self.buffer[self.searched..]);
        let Some(end) = found.map(|offset| self.searched + offset) else {
            self.searched = self.buffer.len();
            return None;
        };
        self.searched = 0;
        let mut line = self.buffer.split_to(end + 1);
        line.truncate(end);
        if std::mem::take(&mut self.is_skipping) {
            return Some(Bytes::new());
        }
        if line.last() == Some(&b'\r') {
            line.truncate(end - 1);
        }
        Some(line.freeze())
    }
}

/// Takes over the process's own input and output.
///
/// From here on, everything the program prints goes to standard error, so that a stray `println!` cannot corrupt the
/// protocol. A pipe is read and written by the runtime; anything else by a thread of its own, so that a runtime can
/// shut down while a read from a terminal is blocked.
pub(crate) fn process_stdio() -> io::Result<(Input, Output, FlushWaiter)> {
    let output = take_output()?;
    let input = match pipes::input() {
        Some(input) => input,
        None => stdin_by_thread()?,
    };
    match pipes::output(&output) {
        Some(output) => Ok((input, output, FlushWaiter(None))),
        None => stdout_by_thread(output).map(|(output, flushed)| (input, output, flushed)),
    }
}

/// Standard input.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Standard output.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens pipes again through `/proc/self/fd`: the new descriptor does not block, and the original keeps its mode.
#[cfg(target_os = "linux")]
mod pipes {
    use std::os::fd::AsRawFd;

    use tokio::net::unix::pipe::OpenOptions;

    use super::{Input, Output};

    fn fd_path(of: &impl AsRawFd) -> String {
        format!("/proc/self/fd/{}", of.as_raw_fd())
    }

    pub(super) fn input() -> Option<Input> {
        let pipe = OpenOptions::new().open_receiver(fd_path(&std::io::stdin())).ok()?;
        Some(Box::new(pipe))
    }

    pub(super) fn output(output: &std::fs::File) -> Option<Output> {
        let pipe = OpenOptions::new().open_sender(fd_path(output)).ok()?;
        Some(Box::new(pipe))
    }
}

#[cfg(not(target_os = "linux"))]
mod pipes {
    use super::{Input, Output};

    pub(super) fn input() -> Option<Input> {
        None
    }

    pub(super) fn output<T>(_: &T) -> Option<Output> {
        None
    }
}

/// Reads standard input on a thread.
fn stdin_by_thread() -> io::Result<Input> {
    let (input, mut typed) = tokio::io::duplex(64 << 10);
    let runtime = Handle::current();
    spawn_thread("toolgate-stdin", move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = io::Read::read(&mut io::stdin().lock(), &mut buffer) {
            if runtime.block_on(typed.write_all(&buffer[..read])).is_err() {
                return;
            }
        }
    })?;
    Ok(Box::new(input))
}

/// Writes standard output on a thread.
fn stdout_by_thread(mut output: impl io::Write + Send + 'static) -> io::Result<(Output, FlushWaiter)> {
    let (mut printed, printer) = tokio::io::duplex(64 << 10);
    let (flushed, waiting) = tokio::sync::oneshot::channel();
    let runtime = Handle::current();
    spawn_thread("toolgate-stdout", move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = runtime.block_on(printed.read(&mut buffer)) {
            if io::Write::write_all(&mut output, &buffer[..read]).is_err() {
                break;
            }
        }
        let _ = io::Write::flush(&mut output);
        let _ = flushed.send(());
    })?;
    Ok((Box::new(printer), FlushWaiter(Some(waiting))))
}

fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Boxed, so that both threads have one type.
    let work: Box<dyn FnOnce() + Send> = Box::new(work);
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Resolves when everything is written. `None`: writes are not buffered.
pub(crate) struct FlushWaiter(Option<tokio::sync::oneshot::Receiver<()>>);

impl FlushWaiter {
    /// Waits for that, but not for a client that does not read.
    pub(crate) async fn wait(self, limit: Duration) {
        if let Some(printed) = self.0 {
            // The thread is gone, or the client does not read: either way there is nothing left to do.
            let _ = tokio::time::timeout(limit, printed).await;
        }
    }
}

#[cfg(unix)]
fn take_output() -> io::Result<std::fs::File> {
    let output = rustix::io::dup(rustix::stdio::stdout())?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(output.into())
}

#[cfg(not(unix))]
fn take_output() -> io::Result<io::Stdout> {
    Ok(io::stdout())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Context;

    use super::*;

    async fn read_lines(input: &[u8], max: usize) -> Vec<String> {
        // One byte at a time finds every boundary.
        let mut lines = LineReader::new(OneByteReader(input), max);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            all.push(String::from_utf8_lossy(&line).into_owned());
        }
        all
    }

    struct OneByteReader<'a>(&'a [u8]);

    impl AsyncRead for OneByteReader<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            if let Some((first, rest)) = self.0.split_first() {
                buffer.put_slice(&[*first]);
                self.0 = rest;
            }
            std::task::Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_line_break_is_found_wherever_it_is() {
        for length in 0..100 {
            let mut bytes = vec![b'a'; length];
            assert_eq!(find_line_break(&bytes), None);
            for place in (0..length).rev() {
                bytes[place] = b'\n';
                assert_eq!(find_line_break(&bytes), Some(place));
            }
        }
    }

    #[tokio::test]
    async fn lines_end_at_line_breaks_and_blank_ones_are_skipped() {
        assert_eq!(read_lines(b"a\r\n\n  \nbc\nhalf", 10).await, ["a", "bc"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() {
        assert_eq!(read_lines(b"0123456789\nok\n", 4).await, ["01234", "ok"]);
    }
}
