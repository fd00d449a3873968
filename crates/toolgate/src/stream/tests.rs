//! Unit tests of streams.

use super::*;

fn message(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn text(reader: &mut Reader) -> String {
    match reader.next().await {
        ReadResult::Message(event) => String::from_utf8(event.data.to_vec()).unwrap(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn messages_come_in_order_and_the_end_comes_last() {
    let stream = Stream::new(Capacity::default());
    stream.push(message("a"));
    stream.push(message("b"));
    stream.finish();
    let mut reader = stream.reader();
    assert_eq!(text(&mut reader).await, "a");
    assert_eq!(text(&mut reader).await, "b");
    assert_eq!(text(&mut reader).await, "End");
}

#[tokio::test]
async fn a_hint_is_dropped_when_full_and_a_push_is_not() {
    let stream = Stream::new(Capacity { messages: 1, bytes: 100 });
    assert!(stream.hint(message("a")));
    assert!(!stream.hint(message("lost")));
    stream.push(message("last"));
    let mut reader = stream.reader();
    assert_eq!(text(&mut reader).await, "a");
    assert_eq!(text(&mut reader).await, "last");
}

#[tokio::test]
async fn send_waits_for_room() {
    let stream = Stream::new(Capacity { messages: 1, bytes: 100 });
    stream.push(message("a"));
    let mut reader = stream.reader();
    let sender = tokio::spawn({
        let stream = Arc::clone(&stream);
        async move { stream.send(message("b")).await.is_ok() }
    });
    tokio::task::yield_now().await;
    assert_eq!(text(&mut reader).await, "a");
    assert_eq!(text(&mut reader).await, "b");
    assert!(sender.await.unwrap());
}

#[tokio::test]
async fn a_resumable_stream_can_be_read_again_from_the_middle() {
    let stream = Stream::new(Capacity::default());
    stream.make_resumable();
    for text in ["a", "b", "c"] {
        stream.push(message(text));
    }
    let mut first = stream.reader();
    assert_eq!(text(&mut first).await, "a");
    assert_eq!(text(&mut first).await, "b");
    let mut second = stream.attach(1).unwrap();
    assert_eq!(text(&mut first).await, "End", "the earlier reader has ended");
    assert_eq!(text(&mut second).await, "b");
    assert_eq!(text(&mut second).await, "c");
    assert!(stream.attach(9).is_none(), "a message that was never written");
}

#[tokio::test]
async fn evicted_messages_cannot_be_read_again() {
    let stream = Stream::new(Capacity { messages: 2, bytes: 100 });
    stream.make_resumable();
    let mut reader = stream.reader();
    for text in ["a", "b", "c", "d"] {
        stream.push(message(text));
        reader.next().await;
    }
    assert!(stream.attach(0).is_none());
    assert!(stream.attach(2).is_some());
}

#[tokio::test]
async fn a_writer_learns_that_its_reader_left() {
    let stream = Stream::new(Capacity { messages: 1, bytes: 100 });
    drop(stream.reader());
    assert!(stream.send(message("a")).await.is_err());
    assert!(!stream.hint(message("a")));
}

#[tokio::test]
async fn messages_outside_the_external_log_have_no_number() {
    let stream = Stream::new(Capacity::default());
    stream.start_after(70);
    let mut reader = stream.reader();
    assert!(stream.hint(message("a hint")));
    assert_eq!(stream.resume_position(), Some(70), "nothing was read, so it is the start position");
    stream.send_numbered(message("a change"), Some(71)).await.unwrap();
    stream.push(message("more"));
    let numbers =
        [reader.try_next(), reader.try_next()].map(|event| event.unwrap().resume_number.map(NonZeroU64::get));
    assert_eq!(numbers, [None, Some(71)]);
    assert_eq!(stream.resume_position(), Some(71));
    assert_eq!(reader.try_next().unwrap().resume_number, None);
    assert_eq!(stream.resume_position(), None);
}

#[tokio::test]
async fn try_next_does_not_take_the_disconnect() {
    let stream = Stream::new(Capacity::default());
    stream.make_resumable();
    stream.push(message("a"));
    stream.disconnect_reader(Duration::from_millis(5));
    let mut reader = stream.reader();
    assert!(reader.try_next().is_some());
    assert!(reader.try_next().is_none());
    assert!(matches!(reader.next().await, ReadResult::Disconnect(_)));
}

#[tokio::test]
async fn a_disconnected_reader_gets_earlier_messages_first() {
    let stream = Stream::new(Capacity::default());
    stream.make_resumable();
    stream.push(message("a"));
    stream.disconnect_reader(Duration::from_millis(5));
    let mut reader = stream.reader();
    assert_eq!(text(&mut reader).await, "a");
    assert!(matches!(reader.next().await, ReadResult::Disconnect(_)));
}
