//! HTTP: who is who, and what is refused with which words.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("http").await;
}
