//! A TCP proxy that alternates between several servers. Unreachable ones are skipped.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    servers: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Proxy {
    pub(crate) async fn open() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let servers = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&servers);
        tokio::spawn(async move {
            let turn = Arc::new(AtomicUsize::new(0));
            while let Ok((client, _)) = listener.accept().await {
                let (known, turn) = (Arc::clone(&known), Arc::clone(&turn));
                tokio::spawn(forward(client, known, turn));
            }
        });
        Proxy { address: at, servers }
    }

    pub(crate) fn set_servers(&self, servers: &[SocketAddr]) {
        *self.servers.lock().unwrap() = servers.to_vec();
    }
}

async fn forward(mut client: TcpStream, servers: Arc<Mutex<Vec<SocketAddr>>>, turn: Arc<AtomicUsize>) {
    let servers = servers.lock().unwrap().clone();
    for _ in 0..servers.len() {
        let next = servers[turn.fetch_add(1, Ordering::Relaxed) % servers.len()];
        if let Ok(mut server) = TcpStream::connect(next).await {
            // The end of either side ends both: the other side sees its connection cut.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
