//! Clients that call tools continuously, and single requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The tools to call, each by its own client, and a text of the response.
const CALLS: [(&str, &str, &str); 4] = [
    ("text_3", "{}", "text 3"),
    ("template_3", r#"{"name":"Ada"}"#, "Ada"),
    ("sql_3", r#"{"sku":"TEA-B"}"#, "Black tea"),
    ("text_7", "{}", "text 7"),
];

/// A free port.
pub(super) fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| error.to_string())
}

/// Sends one request on a new connection.
pub(super) fn send_request(address: &str, path: &str, method: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
    exchange(&mut stream, address, path, &body)
}

/// Sends a request and reads the response; the connection stays open.
fn exchange(stream: &mut TcpStream, address: &str, path: &str, body: &str) -> Result<String, String> {
    let fail = |error: std::io::Error| error.to_string();
    stream.set_nodelay(true).map_err(fail)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(fail)?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(fail)?;
    let (mut read, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let n = stream.read(&mut piece).map_err(fail)?;
        if n == 0 {
            return Err(format!("the connection ended: {}", String::from_utf8_lossy(&read)));
        }
        read.extend_from_slice(piece.get(..n).unwrap_or_default());
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(read.get(..end).unwrap_or_default()).to_ascii_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let Some(length) = length else { return Err(format!("a response without Content-Length: {head}")) };
        if let Some(body) = read.get(end + 4..end + 4 + length) {
            let response = String::from_utf8_lossy(body).into_owned();
            return if head.starts_with("http/1.1 200") {
                Ok(response)
            } else {
                Err(format!("{head}\n{response}"))
            };
        }
    }
}

/// Clients that call tools until they are stopped.
pub(super) struct Load {
    is_stopped: Arc<AtomicBool>,
    n_calls: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(address: &str) -> Load {
        let (is_stopped, n_calls, failures) = (Arc::default(), Arc::default(), Arc::default());
        let clients = CALLS.iter().enumerate().map(|(id, call)| {
            let (is_over, n_calls, failed) =
                (Arc::clone(&is_stopped), Arc::clone(&n_calls), Arc::clone(&failures));
            let address = address.to_owned();
            std::thread::spawn(move || run_client(&address, id, *call, &is_over, &n_calls, &failed))
        });
        let clients = clients.collect();
        Load { is_stopped, n_calls, failures, clients }
    }

    /// Stops the clients. Returns the number of calls, and the errors.
    pub(super) fn stop(self) -> (usize, Vec<String>) {
        self.is_stopped.store(true, Ordering::Relaxed);
        for client in self.clients {
            let _ = client.join();
        }
        let failed = std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner));
        (self.n_calls.load(Ordering::Relaxed), failed)
    }
}

fn run_client(
    address: &str,
    id: usize,
    (tool, arguments, wanted): (&str, &str, &str),
    is_over: &AtomicBool,
    n_calls: &AtomicUsize,
    failed: &Mutex<Vec<String>>,
) {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    );
    let fail = |reason: String| failed.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
    let mut stream = None;
    while !is_over.load(Ordering::Relaxed) {
        let open = match stream.as_mut() {
            Some(open) => open,
            None => match TcpStream::connect(address) {
                Ok(fresh) => stream.insert(fresh),
                Err(error) => return fail(error.to_string()),
            },
        };
        n_calls.fetch_add(1, Ordering::Relaxed);
        match exchange(open, address, "/mcp", &body) {
            Ok(response) if response.contains(wanted) && !response.contains("\"isError\":true") => {}
            Ok(response) => fail(response),
            Err(reason) => {
                fail(reason);
                stream = None;
            }
        }
        // A steady load that does not saturate the CPU.
        std::thread::sleep(Duration::from_millis(2));
    }
}
