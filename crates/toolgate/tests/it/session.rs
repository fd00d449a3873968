//! Sessions: how one begins and ends, and that they do not mix.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("session").await;
}
