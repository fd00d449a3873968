//! Connections on several threads.

use super::*;

/// Every thread gets its share of connections and keeps them. Tasks that are left there end with the listener.
#[tokio::test]
async fn connections_are_distributed_among_threads() {
    let server = start(Options::default().threads(3)).await;
    let mut connections = Vec::new();
    for _ in 0..12 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let response = read_until(&mut stream, ").").await;
        let thread = response.rsplit("\r\n").next().unwrap().to_owned();
        assert!(thread.starts_with("ThreadId("), "{response:?}");
        connections.push((stream, thread));
    }
    let mut each = std::collections::BTreeMap::new();
    for (_, thread) in &connections {
        *each.entry(thread.as_str()).or_insert(0) += 1;
    }
    assert_eq!(each.values().collect::<Vec<_>>(), [&4; 3], "{each:?}");
    for (stream, thread) in &mut connections {
        stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(read_until(stream, ").").await.ends_with(&*thread));
    }
    // Connections that are closed make room for others.
    let busy = format!("{:?}.", std::thread::current().id());
    connections.retain(|(_, thread)| *thread == busy);
    let counted = server.connections.clone();
    eventually("closed connections are noticed", || counted.open() == 4).await;
    for _ in 0..8 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(!read_until(&mut stream, ").").await.ends_with(&busy));
        connections.push((stream, String::new()));
    }
    assert_eq!(server.echo.running.load(Ordering::SeqCst), 32, "all tasks are still running");
    server.shutdown.cancel();
    let running = Arc::clone(&server.echo.running);
    eventually("tasks on other threads have ended", || running.load(Ordering::SeqCst) == 8).await;
    // Dropping the server without waiting ends them as well.
    let again = start(Options::default().threads(2)).await;
    let mut stream = again.connect().await;
    stream.write_all(b"GET /thread HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(
        !read_until(&mut stream, ").").await.ends_with(&busy),
        "the accepting thread has the smallest share"
    );
    let running = Arc::clone(&again.echo.running);
    drop(again);
    eventually("tasks there have ended", || running.load(Ordering::SeqCst) == 0).await;
}

/// Requests on all threads finish, and new connections are not accepted.
#[tokio::test]
async fn threads_drain_together() {
    let mut server = start(Options::default().threads(2)).await;
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut stream = server.connect().await;
        stream.write_all(close("/wait").as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let running = Arc::clone(&server.echo.running);
    eventually("all are served", || running.load(Ordering::SeqCst) == 6).await;
    server.shutdown.cancel();
    for mut stream in waiting {
        assert!(read_to_close(&mut stream).await.ends_with("waited"));
    }
    tokio::time::timeout(Duration::from_secs(5), &mut server.task).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}
