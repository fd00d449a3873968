//! One message a line, over any pair of byte streams; the process's own in particular.
//!
//! Reading stops while the other side does not read: nothing piles up. A line that is no message is
//! answered like any other and the next one is read.
//!
//! On Linux, the process's own pipes are opened a second time and read by the runtime. Whoever has read from
//! `std::io::stdin()` before may have taken more into its buffer than was asked for: that is not seen here. The
//! runtime must have its driver for I/O (`enable_io` or `enable_all`); without it, pipes cannot be served.

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

/// Calls of one connection that may be under way at once. One more is refused: to wait for room would keep
/// out the very messages that make some, answers and cancellations.
const MAX_CONCURRENT_CALLS: usize = 1024;

/// Serves one connection until its input ends or `stop` falls; calls under way get `drain` to finish.
pub(crate) async fn serve<R, W>(
    entry: Arc<Engine>,
    input: R,
    output: W,
    stop: CancellationToken,
    drain: Duration,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let out = Stream::new(Capacity { messages: 1024, bytes: 4 << 20 });
    let closing = CancellationToken::new();
    let line = DuplexConnection::new(Arc::clone(&out), Some(closing.clone()));
    let tasks = Tracker::new();
    let at_once = Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS));
    let mut writer = spawn_on(&Handle::current(), write_messages(out.reader(), output, Arc::clone(&at_once)));
    tasks.spawn({
        let (entry, line) = (Arc::clone(&entry), Arc::clone(&line));
        async move { entry.protocol.send_connection_changes(&line).await }
    });
    entry.protocol.start_cluster();
    let dialect = entry.dialect.load();
    let headers = Arc::default();
    let mut connection = StdioConnection {
        engine: entry,
        connection: line,
        out,
        tasks,
        call_permits: at_once,
        dialect,
        headers,
    };
    let broken = |written: Option<io::Result<()>>| written.unwrap_or(Err(io::ErrorKind::BrokenPipe.into()));
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        // The client asked for the end. What is under way is finished.
        () = closing.cancelled() => Ok(()),
        // Nobody can be answered any more: nothing more is run.
        written = &mut writer => return broken(written),
        ended = connection.read_messages(input) => ended,
    };
    connection.finish(drain).await;
    // A client that does not read what is left must not keep the process.
    let written = match tokio::time::timeout(drain, &mut writer).await {
        Ok(written) => broken(written),
        Err(_) => {
            writer.abort();
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    ended.and(written)
}

struct StdioConnection {
    engine: Arc<Engine>,
    connection: Arc<DuplexConnection>,
    out: Arc<Stream>,
    tasks: Tracker,
    call_permits: Arc<Semaphore>,
    dialect: Option<Arc<Dialect>>,
    /// None: there is no HTTP here.
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

    /// What needs no handler is answered at once. A handler becomes a task before it runs: one that blocks
    /// its thread must not keep the next message from being read.
    fn handle_message(&self, bytes: &Bytes) {
        let permit = Arc::clone(&self.call_permits).try_acquire_owned().ok();
        if permit.is_none()
            && let Some(refusal) = self.engine.reject_overload(bytes)
        {
            self.out.push(refusal);
            return;
        }
        let peer = Peer {
            principal: Principal::anonymous(),
            headers: Arc::clone(&self.headers),
            remote_addr: None,
            via: Channel::Duplex(Arc::clone(&self.connection)),
            dialect: self.dialect.clone(),
            transport: Transport::Stdio,
        };
        let (entry, out) = (Arc::clone(&self.engine), Arc::clone(&self.out));
        match self.engine.begin(bytes, &peer, &self.out) {
            CallState::Finished(answer) => send_reply(&out, answer),
            call => {
                // Boxed, because a task is moved several times before it runs.
                let mut call = Box::new(call);
                self.tasks.spawn(async move {
                    send_reply(&out, entry.complete(&mut call).await);
                    drop(permit);
                });
            }
        }
    }

    /// Lets what is under way finish, then closes.
    async fn finish(self, drain: Duration) {
        self.connection.close_input();
        self.tasks.close();
        // Those that need longer are cancelled: their client has left.
        let _ = tokio::time::timeout(drain, self.tasks.wait()).await;
    }
}

/// However serving ends, dropped in the middle included, nothing of it stays behind.
impl Drop for StdioConnection {
    fn drop(&mut self) {
        self.connection.end();
        self.out.finish();
    }
}

fn send_reply(out: &Stream, answer: Reply) {
    if let Reply::Body { body, kind: told, .. } = answer {
        out.push(body.into_bytes());
        if let ReplyKind::Initialized(after) = told {
            out.push(after);
        }
    }
}

/// Writes what there is in as few writes as possible.
async fn write_messages(
    mut reader: Reader,
    mut output: impl AsyncWrite + Unpin,
    at_once: Arc<Semaphore>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let event = match reader.next().await {
            ReadResult::Message(event) => event,
            // A line is not freed and taken up again.
            ReadResult::Disconnect(_) => continue,
            ReadResult::End => break,
        };
        // Others are under way and may be ready by now: their turn first, and then one write for all.
        if at_once.available_permits() < MAX_CONCURRENT_CALLS {
            tokio::task::yield_now().await;
        }
        buffer.clear();
        let mut event = Some(event);
        while let Some(next) = event {
            buffer.extend_from_slice(&next.data);
            buffer.push(b'\n');
            event = if buffer.len() < 64 << 10 { reader.try_next() } else { None };
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

/// Where the first line break is. Most of what is looked at holds none: 32 bytes at a time.
fn find_line_break(bytes: &[u8]) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<32>();
    let is_break = |byte: &u8| *byte == b'\n';
    let has_none = |block: &&[u8; 32]| !block.iter().fold(false, |found, byte| found | is_break(byte));
    let start = 32 * blocks.iter().take_while(has_none).count();
    bytes[start..].iter().position(is_break).map(|offset| start + offset)
}

/// Cuts input into lines of bounded length.
struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line break.
    searched: usize,
    max_line_bytes: usize,
    /// The line is too long: the rest of it is thrown away.
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

    /// The next line that is not blank. One that is too long arrives cut, one byte over the limit, so that
    /// it is refused for what it is.
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
            // Not into the last few bytes of a block: that would be one more read for nothing.
            if self.buffer.capacity() - self.buffer.len() < READ_BLOCK_BYTES / 4 {
                self.buffer.reserve(READ_BLOCK_BYTES);
            }
            // What stands there without a line break at the end of input is half a message: never run.
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

/// The process's own input and output.
///
/// From here on whatever the program prints goes to standard error: a stray `println!` cannot break the
/// conversation. A pipe is read and written by the runtime itself; anything else by a thread of its own, so that
/// a runtime can end while nothing is being typed.
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

/// What is read from.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// What is written to.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Pipes are opened once more, by their names: what is opened here does not block, and what others have of them does
/// as before.
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

/// Standard input by a thread.
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

/// Standard output by a thread.
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
    // Boxed, so that both are threads of one type.
    let work: Box<dyn FnOnce() + Send> = Box::new(work);
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Resolves when everything has been printed. None: what is written is printed.
pub(crate) struct FlushWaiter(Option<tokio::sync::oneshot::Receiver<()>>);

impl FlushWaiter {
    /// Waits for that, but not for a client that does not read.
    pub(crate) async fn wait(self, limit: Duration) {
        if let Some(printed) = self.0 {
            // The thread is gone, or the client does not read: there is nothing left to do either way.
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
