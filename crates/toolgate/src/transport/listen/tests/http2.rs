//! HTTP/2 with prior knowledge, frame by frame, because the crate has no client.

use super::*;

/// An HTTP/2 connection that sends and receives frames.
pub(super) struct Http2Client(TcpStream);

const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// The status header as HPACK encodes it, the last one with Huffman coding.
const OK: &[u8] = &[0x88];
const BAD_REQUEST: &[u8] = &[0x8c];
const URI_TOO_LONG: &[u8] = &[0x48, 0x83, 0x68, 0x2d, 0x7f];

impl Http2Client {
    pub(super) async fn connect(server: &TestServer) -> Self {
        let mut two = Self(server.connect().await);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        two.0.write_all(preface).await.unwrap();
        two.send(SETTINGS, 0, 0, &[]).await;
        two
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// Sends a POST whose body follows; `fields` are HPACK.
    pub(super) async fn request(&mut self, stream: u32, path: &str, fields: &[u8]) {
        // `:method: POST`, `:scheme: http`, `:authority: a`, and `:path` with a length of two bytes or more.
        let mut block = vec![0x83, 0x86, 0x41, 1, b'a', 0x44, 0x7f];
        let path = format!("{path:?<127}");
        let mut length = path.len() - 127;
        while length > 127 {
            block.push(u8::try_from(length & 127).unwrap() | 128);
            length >>= 7;
        }
        block.push(u8::try_from(length).unwrap());
        block.extend(path.as_bytes());
        block.extend(fields);
        self.send(HEADERS, 4, stream, &block).await;
    }

    /// The payload of the next frame of this kind, or `None` if the server closes first.
    pub(super) async fn next(&mut self, kind: u8) -> Option<Vec<u8>> {
        let read = async {
            loop {
                let mut head = [0; 9];
                self.0.read_exact(&mut head).await.ok()?;
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; length as usize];
                self.0.read_exact(&mut payload).await.ok()?;
                if head[3] == kind {
                    return Some(payload);
                }
            }
        };
        let wait = Duration::from_secs(3);
        tokio::time::timeout(wait, read).await.expect("a frame in time")
    }
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_and_checked() {
    let options = Options::default().idle_timeout(ms(300)).head_timeout(ms(100));
    let server = start(options).await;
    let mut two = Http2Client::connect(&server).await;
    // An idle HTTP/2 connection is not a slow head, although bytes have arrived.
    tokio::time::sleep(ms(200)).await;
    two.request(1, "/", &[]).await;
    two.send(DATA, 1, 1, b"a\nb").await;
    assert!(two.next(HEADERS).await.unwrap().starts_with(OK));
    assert_eq!(two.next(DATA).await.unwrap(), b"a\nb");
    // I01: `:authority` is `a`, and `host` another.
    two.request(3, "/", b"\x0f\x17\x01b").await;
    assert!(two.next(HEADERS).await.unwrap().starts_with(BAD_REQUEST));
    two.request(5, "/", b"\x0f\x17\x01a").await;
    two.send(DATA, 1, 5, b"").await;
    assert!(two.next(HEADERS).await.unwrap().starts_with(OK));
    two.request(7, &format!("/{}", "a".repeat(9 << 10)), &[]).await;
    assert!(two.next(HEADERS).await.unwrap().starts_with(URI_TOO_LONG));
    // An idle connection ends with GOAWAY.
    assert!(two.next(GOAWAY).await.is_some());
    while two.next(GOAWAY).await.is_some() {}
}
