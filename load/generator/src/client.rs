//! A blocking HTTP connection, for everything except the closed loop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::BoxError;
use crate::response::Head;
use crate::server::Endpoint;
use crate::workload::{PreparedRequest, Workload};

const READ_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    endpoint: Endpoint,
    stream: TcpStream,
}

/// A whole response.
pub(crate) struct Response {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.head.status)
    }
}

impl Client {
    pub(crate) fn connect(endpoint: &Endpoint) -> Result<Self, BoxError> {
        let stream = TcpStream::connect_timeout(&endpoint.address, READ_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { endpoint: endpoint.clone(), stream })
    }

    /// Sends bytes and reads a whole response.
    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> Result<Response, BoxError> {
        self.stream.write_all(bytes)?;
        let mut buffer = Vec::new();
        let head = self.read_head(&mut buffer)?;
        loop {
            if let Some(body) = head.body(&buffer) {
                let body = body.into_owned();
                return Ok(Response { head, body });
            }
            self.read_more(&mut buffer)?;
        }
    }

    /// Sends bytes, and reads the head and the first event of a stream that stays open.
    pub(crate) fn open_stream(&mut self, bytes: &[u8]) -> Result<Head, BoxError> {
        self.stream.write_all(bytes)?;
        self.read_head(&mut Vec::new())
    }

    /// Performs the handshake of 2025-11-25. Returns the session id if the server opens a session.
    pub(crate) fn handshake(&mut self) -> Result<Option<String>, BoxError> {
        let response = self.exchange(&Workload::START.prepare(&self.endpoint, None, 0).bytes)?;
        if !response.is_success() {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            return Err(format!("initialize: status {} with {body}", response.head.status).into());
        }
        let session = response.head.session;
        let response = self.exchange(&PreparedRequest::initialized(&self.endpoint, session.as_deref()))?;
        match response.is_success() {
            true => Ok(session),
            false => Err(format!("notifications/initialized: status {}", response.head.status).into()),
        }
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn read_head(&mut self, buffer: &mut Vec<u8>) -> Result<Head, BoxError> {
        loop {
            if let Some(head) = Head::read(buffer)? {
                return Ok(head);
            }
            self.read_more(buffer)?;
        }
    }

    fn read_more(&mut self, buffer: &mut Vec<u8>) -> Result<(), BoxError> {
        let mut chunk = [0; 16 * 1024];
        let n_read = self.stream.read(&mut chunk)?;
        if n_read == 0 {
            return Err("the server closed the connection".into());
        }
        buffer.extend_from_slice(&chunk[..n_read]);
        Ok(())
    }
}
