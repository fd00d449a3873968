//! HTTP: who is who, and what is refused with which words.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("http").await;
}
