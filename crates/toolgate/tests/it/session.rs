//! Sessions: their start, end, and isolation.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("session").await;
}
